"""The App: what a process can run, and ways to run it: in this loop, as a worker process or several, one run to its end."""

from .app import App, run

__all__ = ["App", "run"]

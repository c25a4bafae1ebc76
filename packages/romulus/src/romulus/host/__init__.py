"""The machine as the engine sees it: the real `Host`, and who this process is."""

from .identity import this_process
from .real import RealHost

__all__ = ["RealHost", "this_process"]

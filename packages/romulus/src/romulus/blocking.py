"""The calls of `def` workflows: what `await` does in async ones."""

from romulus.authoring.blocking import map, sleep, wait_for_event  # noqa: A004 - a public name

__all__ = ["map", "sleep", "wait_for_event"]

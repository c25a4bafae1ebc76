"""The calls of `def` workflows: what `await` does in async ones."""

from romulus.authoring.blocking import BlockingChild, call, map, sleep, start, wait_for_event  # noqa: A004 - a public name

__all__ = ["BlockingChild", "call", "map", "sleep", "start", "wait_for_event"]

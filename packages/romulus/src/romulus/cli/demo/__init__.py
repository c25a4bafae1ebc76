"""`romulus demo`: the main job on real input, with a worker killed and another one frozen."""

from .command import add_to

__all__ = ["add_to"]

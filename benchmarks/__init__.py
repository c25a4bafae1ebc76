"""Benchmarks: the engine's figures beside the machine's raw limits, measured in the same run. See docs/reference/benchmarks.md."""

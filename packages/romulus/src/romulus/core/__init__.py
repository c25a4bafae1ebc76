"""The pure heart of Romulus: what a run may do next, and what its record means.

Who is authoritative for what:

- `machine`   which status may follow which (the state machine; it exists only here)
- `record`    what is stored of a run: its row, its generation, its journal entries
- `transition` the one atomic change of a record, and what a store answers to it
- `loop`      the deterministic event loop a generation's code runs on
- `instance`  one generation in memory: its code, its commands, what it awaits
- `attempts`  whether a failed or lost attempt is tried again, and when
- `values`, `failures`  how values and exceptions become bytes and come back
- `ports`     the `Host`: threads, clocks and timers, handed in from outside

Nothing here knows a driver, a clock, a thread, a logger or the operating system.
"""

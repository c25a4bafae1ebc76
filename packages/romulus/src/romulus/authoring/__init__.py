"""What users write with: decorators, and what code inside a run may ask.

- `step`, `workflow`, `resource`  the decorators and what they make
- `checks`, `suspends`            what may be declared, refused with its remedy
- `current`, `waiting`, `blocking`, `logger`  what code inside a run calls
- `registry`, `scan`              what an App knows, and what its workflows reach

An object here knows `core.instance` of the running loop and nothing of workers, stores or clients.
"""

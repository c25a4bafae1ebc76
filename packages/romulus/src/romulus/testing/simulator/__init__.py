"""The deterministic simulation: the real engine on the real SQLite store, in one thread, on a virtual clock."""

"""One file per command or group of small ones. Each is loaded by name from a table, see `cli/lazy.py`."""

"""The daemon's core: records, admission, operations, exits, supervision, reconciliation, and its answers."""

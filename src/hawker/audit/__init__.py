"""The audit log: who did what to which thing, from where, and what became of it; a chain of hashes."""

"""Volumes and their snapshots: operations, flows, and the adapters to files, file systems and guests."""

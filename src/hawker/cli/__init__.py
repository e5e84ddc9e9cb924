"""The `hawker` command."""

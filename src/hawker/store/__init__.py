"""The embedded key-value store that a worker keeps its truth in."""

"""Volume."""

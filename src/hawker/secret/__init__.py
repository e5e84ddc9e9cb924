"""Secret."""

"""Histories of destroyed machines: from rows of the store to a file in the archive, and back."""

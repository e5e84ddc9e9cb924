"""Copies of volumes off their host: chunks named by their content, sealed, in a directory or bucket."""

"""Histories of destroyed machines: one compressed SQLite file each, in a directory or a bucket, and the way back."""

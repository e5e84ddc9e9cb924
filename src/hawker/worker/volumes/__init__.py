"""Volumes: what is stored of them, what may be done to them, and what the host must offer for it."""

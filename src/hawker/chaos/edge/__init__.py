"""Clients of a real fleet's edges, while what serves them dies."""

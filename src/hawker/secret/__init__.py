"""Secrets and secret keys of apps: sealed in the store, given to machines, used in place."""

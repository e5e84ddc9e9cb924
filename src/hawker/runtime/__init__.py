"""Drivers: the contract, then one file or folder per technology, and the fake that keeps every promise."""

"""Edges of several hosts in virtual time: their own code, over played connections, before played machines."""

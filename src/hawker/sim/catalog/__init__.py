"""The catalog's replication under faults, in virtual time: the real engine of each node, a storage in memory or on
disk, and a network that loses, doubles, delays and parts. One seed is one run. What must hold is in oracle.py.
"""

"""Private networks of several hosts in virtual time: their numbers, names, ways between hosts, and certificates."""

"""The resolver of a node's machines: names of their own private network, all others by way of the host's servers."""

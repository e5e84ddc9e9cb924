"""Whole fleets in virtual time: real workers, brokers, gossip, catalogs and spares, over played hosts and networks."""

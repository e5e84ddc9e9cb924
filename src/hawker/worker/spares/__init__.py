"""Spares: stopped machines that are started once the host of a machine they stand by for is lost (contract 3.6).

The spare's own worker decides, since it is the only one that can start it. It does so on the side that sees most of the
region's nodes, once another of them has confirmed the loss; a takeover is recorded in the transaction that starts the
spare, and the lost host ends its machine when it hears of it.
"""

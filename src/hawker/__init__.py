"""Hawker: order a machine, workers bid, the order fills now or not at all."""

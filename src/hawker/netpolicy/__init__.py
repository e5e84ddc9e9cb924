"""Netpolicy."""

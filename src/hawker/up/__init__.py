"""`hawker up` and `hawker worker`: the roles of a node in one process. Only here objects are built and joined."""

from hawker.up.node import join, run

__all__ = ["join", "run"]

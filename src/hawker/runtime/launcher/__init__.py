"""Launching container machines: the plan that `launcher` carries out, and the choice between it and crun."""

"""A whole worker in one process over a played host, for the simulators and for the tests of the worker."""

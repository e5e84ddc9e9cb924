"""The tests of this folder run in virtual time: a deadline, a pause or a late record never comes before the work that a
busy host holds up."""

from tests.worker.hourglass import in_virtual_time

__all__ = ["anyio_backend"]

anyio_backend = in_virtual_time

"""The tests of this folder run in virtual time, on a worker that is whole."""

from tests.simulated_worker import anyio_backend, stall, worker

__all__ = ["anyio_backend", "stall", "worker"]

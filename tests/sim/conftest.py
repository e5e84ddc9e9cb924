"""The simulator's own tests run in virtual time, too."""

from tests.simulated_worker import anyio_backend, stall, worker

__all__ = ["anyio_backend", "stall", "worker"]

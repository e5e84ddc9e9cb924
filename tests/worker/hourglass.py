"""The fixture that has a module's tests run in virtual time: `anyio_backend = in_virtual_time`."""

import pytest

from hawker.sim.harness.loop import VirtualTimeLoop


@pytest.fixture(scope="session", name="anyio_backend")
def in_virtual_time() -> object:
    return "asyncio", {"loop_factory": VirtualTimeLoop}

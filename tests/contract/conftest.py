"""The host with a driver that the driver suites run on, once per entry of `drivers.RIGS`."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.contract.drivers import RIGS, MakeRig, Rig

DEADLINE_S, BOOTS = 60.0, 15


@pytest.fixture(params=RIGS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    make: MakeRig = request.param
    async with make(tmp_path) as made:
        try:
            with anyio.fail_after(DEADLINE_S + BOOTS * made.boot_s):
                yield made
        finally:
            await made.destroy_all()


@pytest.fixture
def real(rig: Rig) -> Rig:
    """One whose commands are programs that run."""
    if not rig.real:
        pytest.skip("needs programs that really run")
    return rig

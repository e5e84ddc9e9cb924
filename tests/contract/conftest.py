"""The host with a driver that the driver suites run on, once per entry of `drivers.RIGS`."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.contract.drivers import RIGS, MakeRig, Rig, cloud_hypervisor_rig, crun_rig, firecracker_rig, qemu_rig

DEADLINE_S, BOOTS = 240.0, 40
LONG: dict[MakeRig, pytest.MarkDecorator] = {
    qemu_rig: pytest.mark.long(
        reason="boots a guest kernel under emulation, as over 100 of these do; the `booted` ones are the short form"
    ),
    crun_rig: pytest.mark.long(reason="as with our own launcher, which is the short form beside the `booted` ones"),
    **dict.fromkeys(
        (firecracker_rig, cloud_hypervisor_rig),
        pytest.mark.long(
            reason="a VMM for each of 160 machines, of which none boots; the `booted` ones are the short form, with "
            "tests/runtime/test_microvm.py and what is beside it"
        ),
    ),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With these rigs the whole suite is long; `booted` tests are the short form, one of each kind of promise."""
    for item in items:
        if not item.get_closest_marker("booted"):
            for rig in _rigs_of(item) & LONG.keys():
                item.add_marker(LONG[rig])


def _rigs_of(item: pytest.Item) -> set[MakeRig]:
    callspec = getattr(item, "callspec", None)
    return set() if callspec is None else {rig for rig in callspec.params.values() if rig in [*LONG]}


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

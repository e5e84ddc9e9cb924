from pathlib import Path

import pytest

from hawker.ids import VolumeId
from hawker.machine import State
from hawker.volume.guest_disks import Use, VolumeHold
from tests.worker.lifecycle.guests import MACHINE, Guest

pytestmark = pytest.mark.anyio
FILE = Path("/volumes/disk")


@pytest.fixture
def guest() -> Guest:
    return Guest()


async def test_a_volume_no_machine_has_is_the_hosts(guest: Guest) -> None:
    assert await guest.use.of(VolumeId("vol_nobodys")) == VolumeHold(Use.FREE)


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED])
async def test_so_is_that_of_a_machine_that_is_off(guest: Guest, state: State) -> None:
    await guest.attach(state)
    assert await guest.use.of(guest.volume_id) == VolumeHold(Use.FREE, MACHINE)


@pytest.mark.parametrize("state", [State.CREATED, State.STARTING, State.STOPPING, State.RESTARTING, State.DESTROYING])
async def test_while_a_machine_changes_nobody_may_touch_it(guest: Guest, state: State) -> None:
    await guest.attach(state)
    assert await guest.use.of(guest.volume_id) == VolumeHold(Use.CHANGING, MACHINE)


async def test_a_guest_that_runs_or_is_suspended_has_it(guest: Guest) -> None:
    await guest.run(FILE)
    assert await guest.use.of(guest.volume_id) == VolumeHold(Use.GUEST, MACHINE)
    await guest.suspend()
    assert await guest.use.of(guest.volume_id) == VolumeHold(Use.HELD, MACHINE)


@pytest.mark.parametrize("state", [State.STOPPED, State.STOPPING, State.FAILED])
async def test_an_instance_that_the_record_has_not_heard_of_counts(guest: Guest, state: State) -> None:
    await guest.run(FILE)
    await guest.turn(state)
    assert (await guest.use.of(guest.volume_id)).use is Use.CHANGING

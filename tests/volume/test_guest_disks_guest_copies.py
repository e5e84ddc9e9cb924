"""Copies of volumes that guests have: real files, and a guest that is played."""

from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.errors import Unavailable, WrongState
from hawker.host.sparse import draft
from hawker.ids import new_snapshot_id, new_volume_id
from hawker.machine import State
from hawker.volume import guest_disks as module
from hawker.volume.guest_disks import GuestCopies
from tests.worker.lifecycle.guests import Guest

pytestmark = pytest.mark.anyio
SNAPSHOT = new_snapshot_id(SystemClock())


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def guest() -> Guest:
    return Guest()


@pytest.fixture
def file(tmp_path: Path, guest: Guest) -> Path:
    file = tmp_path / "volumes" / guest.volume_id / "disk"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"data")
    return file


@pytest.fixture
def copies(tmp_path: Path, guest: Guest) -> GuestCopies:
    volumes = tmp_path / "volumes"
    return GuestCopies(tmp_path / "snapshots", lambda each: volumes / each / "disk", guest.driver, guest.use)


async def test_a_volume_that_nobody_has_is_copied_as_it_lies(copies: GuestCopies, guest: Guest, file: Path) -> None:
    await guest.attach()
    await copies.take(guest.volume_id, SNAPSHOT)
    assert await copies.list() == [SNAPSHOT]
    fork = new_volume_id(SystemClock())
    await copies.fork(guest.volume_id, fork)
    assert (file.parents[1] / fork / "disk").read_bytes() == b"data"


async def test_a_guest_s_disk_is_held_still_by_the_guest_meanwhile(
    copies: GuestCopies, guest: Guest, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guest.run(file)
    still: list[int] = []
    drafted = draft

    async def watched(source: Path, target: Path) -> object:
        still.append(len(guest.host.still))
        return await drafted(source, target)

    monkeypatch.setattr(module, "draft", watched)
    await copies.take(guest.volume_id, SNAPSHOT)
    assert still == [1] and guest.host.still == set()


async def test_a_guest_that_lets_go_leaves_no_snapshot(
    copies: GuestCopies, guest: Guest, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guest.run(file)
    drafted = draft

    async def ending(source: Path, target: Path) -> object:
        guest.end()
        return await drafted(source, target)

    monkeypatch.setattr(module, "draft", ending)
    with pytest.raises(Unavailable, match="let go"):
        await copies.take(guest.volume_id, SNAPSHOT)
    assert await copies.list() == []


async def test_a_suspended_guest_s_disk_is_refused(copies: GuestCopies, guest: Guest, file: Path) -> None:
    await guest.run(file)
    await guest.suspend()
    with pytest.raises(WrongState, match="is suspended: start it first"):
        await copies.take(guest.volume_id, SNAPSHOT)
    assert await copies.list() == []


async def test_while_its_machine_starts_it_is_left_alone(copies: GuestCopies, guest: Guest, file: Path) -> None:
    await guest.attach(State.STARTING)
    with pytest.raises(Unavailable, match="being started or stopped"):
        await copies.take(guest.volume_id, SNAPSHOT)


async def test_nothing_is_left_to_thaw_on_the_host(copies: GuestCopies, guest: Guest, file: Path) -> None:
    await guest.run(file)
    await copies.mend(frozenset({guest.volume_id}))
    assert (await guest.driver.inspect(next(iter(guest.host.machines())))).exit is None

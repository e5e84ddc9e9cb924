"""Forks and restores that are to be on another host than what they are made from: made there, moved once whole, whoever
is killed when.
"""

from collections.abc import Sequence
from functools import partial

import anyio
import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.volume import CREATE_VOLUME, GET_VOLUME, CreateVolumeRequest, Volume, VolumeParams
from hawker.errors import Fault, HawkerError, MoveUnderWay
from hawker.ids import VolumeId
from hawker.node import Capacity
from hawker.record.move import MOVES, OPEN_MOVE_OF, MoveState
from hawker.record.volume import VOLUMES, VolumeRecord, VolumeState
from hawker.sim.harness.loop import eventually
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.sim_worker import APP
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

FULL = Capacity(cpus=8, memory_mib=16_384, disk_mib=0, shared_ratio=1.0)


async def forked(fleet: PlayedFleet, apart: bool | None = True) -> Volume:
    body = CreateVolumeRequest(name="free", source_volume_id=fleet.free, require_unique_zone=apart)
    return await fleet.worker(0).api.call(CREATE_VOLUME, params=AppParams(app_name=APP), body=body)


def forks(fleet: PlayedFleet) -> list[tuple[int, VolumeRecord]]:
    """Each with the number of its host."""
    return [
        (number, record)
        for number, host in enumerate(fleet.hosts)
        for _, record in host.world.store.scan(VOLUMES)
        if record.source_volume == fleet.free
    ]


async def test_a_fork_in_a_zone_of_its_own_is_on_another_host_when_it_is_answered() -> None:
    async with played_fleet() as fleet:
        fork = await forked(fleet)
        ((number, record),) = forks(fleet)
        assert number != 0 and fork.zone == fleet.id(number) and fork.id == record.id
        assert (fork.state, record.state) == ("created", VolumeState.CREATED)
        shown = await fleet.worker(number).api.call(GET_VOLUME, params=VolumeParams(app_name=APP, volume_id=fork.id))
        assert (shown.zone, shown.size_gb, shown.state) == (fork.zone, fork.size_gb, "created")
        assert fleet.hosts[0].world.store.get(OPEN_MOVE_OF, fork.id) is None
        assert await fleet.settled() == []


async def test_a_fork_goes_to_a_host_without_a_volume_of_its_name_first() -> None:
    async with played_fleet() as fleet:
        zones = {(await forked(fleet)).zone for _ in range(2)}
        assert zones == {fleet.id(1), fleet.id(2)}


@pytest.mark.parametrize("apart", [False, None])
async def test_a_fork_stays_beside_its_source_unless_told_otherwise(apart: bool | None) -> None:
    async with played_fleet() as fleet:
        assert (await forked(fleet, apart)).zone == fleet.id(0)
        assert fleet.hosts[0].world.store.count(MOVES) == 0


async def test_a_fork_stays_where_no_other_host_has_room_and_can_be_used() -> None:
    async with played_fleet() as fleet:
        for host in fleet.hosts[1:]:
            host.world.room = FULL
        fork = await forked(fleet)
        assert (fork.zone, fork.state) == (fleet.id(0), "created")
        assert fleet.hosts[0].world.store.get(OPEN_MOVE_OF, fork.id) is None
        assert await fleet.settled() == []


async def test_fork_that_could_not_be_made_as_large_as_ordered_does_not_leave() -> None:
    async with played_fleet() as fleet:
        first = fleet.worker(0)
        fleet.hosts[0].world.disks.troubles += [ScriptedFailure("grow", after=False)] * 20
        body = CreateVolumeRequest(name="free", source_volume_id=fleet.free, require_unique_zone=True, size_gb=2)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(first.api.call, CREATE_VOLUME, params=AppParams(app_name=APP), body=body))
            await eventually(fleet._clock, lambda: [each.state for _, each in forks(fleet)] == ["hydrating"], 60)
            [run] = [run for run in first.parts.runner.list(active=True) if run.flow == "volume_fork"]
            await first.parts.runner.abort(run.run_id)
        await eventually(fleet._clock, lambda: [each.state for _, each in forks(fleet)] == ["created"], 600)
        [(number, fork)] = forks(fleet)
        assert (number, fork.made_gb) == (0, 2)
        [move] = [each for _, each in fleet.hosts[0].world.store.scan(MOVES)]
        assert move.state is MoveState.ABORTED and "as large as ordered" in move.reason
        assert await fleet.settled() == []


async def test_a_fork_on_a_node_that_is_alone_stays_there() -> None:
    async with played_fleet() as fleet:
        fleet.worker(0).parts.deps.others._others = None
        assert (await forked(fleet)).zone == fleet.id(0)
        assert fleet.hosts[0].world.store.count(MOVES) == 0


async def test_nobody_uses_a_fork_that_is_about_to_leave() -> None:
    async with played_fleet() as fleet:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forked, fleet)
            await eventually(fleet._clock, lambda: bool(forks(fleet)), 60)
            ((_, record),) = forks(fleet)
            with pytest.raises(MoveUnderWay):
                await fleet.worker(0).delete_volume(record.id)
        assert [number for number, _ in forks(fleet)] != [0]


async def test_a_fork_that_cannot_be_made_leaves_no_move_behind() -> None:
    async with played_fleet() as fleet:

        async def fails(source: VolumeId, volume_id: VolumeId) -> None:
            raise OSError("no space left on device")

        fleet.hosts[0].world.copies.fork = fails  # type: ignore[method-assign]
        with pytest.raises(Fault, match="could not be made"):
            await forked(fleet)
        assert forks(fleet) == [] and fleet.hosts[0].world.store.count(OPEN_MOVE_OF) == 0


@pytest.mark.parametrize("life", range(12))
async def test_a_fork_that_was_accepted_leaves_over_deaths_of_its_daemon(life: int) -> None:
    """Killed at another moment each time, in what makes it and in what moves it; all or nothing of it is there."""
    async with played_fleet(seed=life + 1) as fleet:
        accepted: Sequence[tuple[int, VolumeRecord]] = ()

        async def order() -> None:
            try:
                await forked(fleet)
            except HawkerError:
                return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(order)
            await eventually(fleet._clock, lambda: fleet.hosts[0].world.store.count(MOVES) > 0, 60)
            for _ in range(1 + life % 3):
                await fleet._clock.sleep(0.013 * life)
                await fleet.again(0, power=life % 4 == 3)
            accepted = forks(fleet)
            tasks.cancel_scope.cancel()
        if accepted:
            await eventually(fleet._clock, lambda: [number for number, _ in forks(fleet)] in ([1], [2]), 600)
        assert await fleet.settled() == []
        assert all(record.state is VolumeState.CREATED for _, record in forks(fleet))

"""What a unit is made of on disk, and that a machine's kept root filesystem goes wherever its machine goes."""

import msgspec
import pytest

from hawker.api.contract.move_peer import IncomingRequest
from hawker.errors import NotServed, Unavailable
from hawker.ids import AppName, MachineId, NodeId, VolumeId
from hawker.machine import State
from hawker.node import Resources
from hawker.record.machine import MACHINES
from hawker.record.move import (
    INCOMING,
    MOVES,
    RETIRED,
    IncomingRecord,
    IncomingState,
    KeptRoot,
    MoveRecord,
    MoveState,
    held_by_incoming,
)
from hawker.record.node import used
from hawker.sim.harness.loop import eventually
from hawker.sim.node.fake_moved_files import LAYER_BYTES
from hawker.sim.node.kit import FEATURES, GUEST_FEATURES, WorkerKit
from hawker.volume.moved_files import MovedFile
from hawker.worker.moves.orders import MachineMoves
from hawker.worker.moves.unit import check_root, unit_files, with_root
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

KEEPS_ROOT = 2
"""A seed whose machine does."""

ROOT = KeptRoot(layer="kept", size_bytes=(300 << 20) + 1)


def test_a_unit_has_the_files_of_its_volume_and_of_what_its_machine_keeps() -> None:
    machine, volume = MachineId("77424481f6cc77"), VolumeId("vol_0000000000000001")
    move = MoveRecord(id="01", app=AppName("a"), machine=machine, generation=2, created_at=0.0, updated_at=0.0)
    assert unit_files(move) == ()
    assert unit_files(msgspec.structs.replace(move, root=ROOT)) == (MovedFile(machine, "kept"),)
    both = unit_files(msgspec.structs.replace(move, root=ROOT, volume=volume))
    assert both == (MovedFile(volume), MovedFile(machine, "kept"))


def test_a_kept_root_takes_at_least_its_size_of_the_disk() -> None:
    assert with_root(Resources(disk_mib=10), None).disk_mib == 10
    assert with_root(Resources(memory_mib=1), ROOT) == Resources(memory_mib=1, disk_mib=301)
    assert with_root(Resources(disk_mib=1000), ROOT).disk_mib == 1000


def test_a_root_that_a_microvm_wrote_goes_to_no_node_of_containers_and_the_other_way_round() -> None:
    guests = msgspec.structs.replace(ROOT, guest_written=True)
    check_root(ROOT, FEATURES)
    check_root(guests, GUEST_FEATURES)
    for root, features in ((ROOT, GUEST_FEATURES), (guests, FEATURES)):
        with pytest.raises(NotServed, match="wrote the root filesystem"):
            check_root(root, features)


async def test_a_move_goes_on_though_nobody_trims_its_files() -> None:
    async with played_fleet() as fleet:

        async def is_busy(file: MovedFile, start: int) -> int | None:
            raise Unavailable("the machine does not answer")

        fleet.hosts[0].world.moved_files.trim = is_busy  # type: ignore[method-assign]
        assert (await fleet.ended(0, (await fleet.move(0, 1)).id)).state is MoveState.DONE
        assert await fleet.settled() == []


async def test_a_kept_root_goes_with_its_machine_and_back_and_is_retired_each_time() -> None:
    async with played_fleet(seed=KEEPS_ROOT) as fleet:
        machine = MachineId(fleet.machine)
        for source, to in ((0, 1), (1, 2), (2, 0)):
            await fleet._clock.sleep(1)  # it writes meanwhile
            before = fleet.hosts[source].world.rootfs.writes[machine, "kept"]
            move = await fleet.ended(source, (await fleet.move(source, to)).id)
            assert move.state is MoveState.DONE and move.root == KeptRoot(layer="kept", size_bytes=LAYER_BYTES)
            await fleet.worker(to).reaches(machine, State.STARTED)
            assert fleet.hosts[to].world.rootfs.writes[machine, "kept"] >= before > 0
            assert machine not in fleet.hosts[source].world.rootfs.directories
            kept = fleet.hosts[source].world.store.get(RETIRED, f"{machine}/{move.generation}")
            assert kept is not None and kept.layer == "kept"
            assert fleet.hosts[source].world.moved_files.retired[machine, move.generation] >= before
        assert await fleet.settled() == []


async def test_a_machine_that_is_off_holds_disk_for_its_kept_root_at_its_new_node() -> None:
    async with played_fleet(seed=KEEPS_ROOT) as fleet:
        machine = MachineId(fleet.machine)
        await fleet.worker(0).stop(machine)
        await fleet.worker(0).reaches(machine, State.STOPPED)
        before = fleet.hosts[0].world.rootfs.writes[machine, "kept"]
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        assert (move.state, move.ran) == (MoveState.DONE, False)
        record = fleet.hosts[1].world.store.get(MACHINES, machine)
        assert record is not None and record.state is State.STOPPED
        assert record.holds == Resources(disk_mib=LAYER_BYTES >> 20)
        store = fleet.hosts[1].world.store
        held = used(store).minus(held_by_incoming(store))  # by the snapshot that follows
        assert held.disk_mib == 1024 + (LAYER_BYTES >> 20)
        assert fleet.hosts[1].world.rootfs.writes[machine, "kept"] == before


async def test_a_move_that_ends_before_its_grant_leaves_the_kept_root_where_it_was() -> None:
    async with played_fleet(seed=KEEPS_ROOT) as fleet:
        fleet.hosts[1].world.moved_files.spoils = 10**9
        assert (await fleet.ended(0, (await fleet.move(0, 1)).id)).state is MoveState.ABORTED
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        await eventually(fleet._clock, lambda: not fleet.hosts[1].world.moved_files.drafted, 60)
        assert await fleet.settled() == []
        assert fleet.hosts[1].world.rootfs.directories == set()


async def test_a_node_that_refuses_what_it_was_granted_drops_the_root_that_was_in_its_place() -> None:
    async with played_fleet(seed=KEEPS_ROOT) as fleet:
        fleet.hosts[1].refuses = True
        assert (await fleet.ended(0, (await fleet.move(0, 1)).id)).state is MoveState.ABORTED
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        assert fleet.hosts[1].world.rootfs.writes == {}
        assert await fleet.settled() == []


async def test_the_doctor_leaves_a_root_alone_whose_machine_is_on_its_way() -> None:
    async with played_fleet(seed=KEEPS_ROOT) as fleet:
        machine, world = MachineId(fleet.machine), fleet.hosts[1].world
        await fleet.move(0, 1)

        def copied() -> bool:
            return any(each.state is IncomingState.COPIED for _, each in world.store.scan(INCOMING))

        await eventually(fleet._clock, copied, 60, 0.001)
        world.rootfs.directories.add(machine)
        found = await fleet.worker(1).reconciler.find()
        assert not [each for each in found if each.about == machine]


async def test_a_root_that_is_a_directory_is_refused_at_the_order() -> None:
    async with played_fleet(seed=KEEPS_ROOT) as fleet:
        fleet.hosts[0].world.moved_files.plain.add(fleet.machine)
        with pytest.raises(NotServed, match="machine_disk_mib"):
            await fleet.move(0, 1)
        assert fleet.hosts[0].world.store.count(MOVES) == 0


async def test_a_root_that_was_made_since_the_move_began_is_not_left_behind() -> None:
    async with played_fleet(seed=1) as fleet:
        move = await fleet.move(0, 1)
        deps = fleet.worker(0).parts.deps
        record = fleet.worker(0).record(fleet.machine)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.moved_files.drafted, 60, 0.0005)
        keeps = msgspec.convert({"image": record.config.image, "rootfs": {"persist": "always"}}, type(record.config))
        fleet.hosts[0].world.rootfs.writes[record.id, "kept"] = 1
        config = msgspec.structs.replace(record.config, rootfs=keeps.rootfs)
        await deps.store.write(lambda tx: deps.table.change(tx, deps.table.get(tx, record.id), config=config))
        ended = await fleet.ended(0, move.id)
        assert ended.state is MoveState.ABORTED and "since the move began" in ended.reason
        assert NodeId(ended.to) == fleet.id(1)


class OlderMoves(MachineMoves):
    """Of a node that knows of no roots, and does not say that it takes one."""

    async def hold(self, move_id: str, asked: IncomingRequest) -> IncomingRecord:
        return msgspec.structs.replace(await super().hold(move_id, asked), root=None)

    def incoming(self, move_id: str) -> IncomingRecord:
        return msgspec.structs.replace(super().incoming(move_id), root=None)


@pytest.mark.parametrize(("seed", "state"), [(1, MoveState.DONE), (KEEPS_ROOT, MoveState.ABORTED)])
async def test_an_older_node_is_given_no_machine_that_keeps_its_root(seed: int, state: MoveState) -> None:
    async with played_fleet(WorkerKit(moves=OlderMoves), seed=seed) as fleet:
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        assert move.state is state and ("version is older" in move.reason) is (state is MoveState.ABORTED)
        assert await fleet.settled() == []

"""Each check of moves finds what it is there for, and nothing in a sound fleet."""

import msgspec
import pytest

from hawker.ids import EventId, MachineId, SnapshotId, VolumeId
from hawker.machine import State
from hawker.node import Resources
from hawker.proof.move_checks import (
    Generations,
    NodeSight,
    forgotten_orders,
    lost_snapshots,
    lost_writes,
    moves_at_rest,
    not_the_same,
    of_moves,
    snapshots_at_rest,
    stays_down,
    stopped_again,
    went_back_again,
)
from hawker.proof.violation import Invariant
from hawker.record.machine import BY_ORDER, EVENTS, MACHINES, MachineKey
from hawker.record.move import GRANTS, INCOMING, MOVED, MOVES, MoveState, held_by_incoming
from hawker.record.volume import SNAPSHOTS, VOLUMES, DamageRecord
from hawker.sim.harness.loop import eventually
from hawker.store.contract import Tx
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def moved(fleet: PlayedFleet) -> list[NodeSight]:
    await fleet.ended(0, (await fleet.move(0, 1)).id)
    assert await fleet.settled() == []
    return fleet._fleet.sights()


async def test_a_sound_move_breaks_nothing_and_each_breach_is_found() -> None:
    async with played_fleet() as fleet:
        before = fleet.worker(0).record(fleet.machine)
        sights = await moved(fleet)
        generations = Generations()
        assert [*of_moves(sights), *moves_at_rest(sights), *generations.broken(sights)] == []
        record = fleet.worker(1).record(fleet.machine)
        assert list(not_the_same(before, record)) == []
        renamed = msgspec.structs.replace(record, name="other")
        assert [each.invariant for each in not_the_same(before, renamed)] == [Invariant.SAME]
        (move,) = [each for _, each in sights[0].reader.scan(MOVES)]

        def break_it(tx: Tx) -> None:
            tx.delete(GRANTS, fleet.machine)
            tx.delete(MOVED, fleet.machine)
            tx.put(MACHINES, record.id, record)
            tx.put(MOVES, move.id, msgspec.structs.replace(move, state=MoveState.COPYING))

        await fleet.hosts[0].world.store.write(break_it)
        assert Invariant.ONE_OWNER in {each.invariant for each in of_moves(sights)}
        assert Invariant.ONE_OWNER in {each.invariant for each in generations.broken(sights)}
        assert Invariant.MOVE_ENDS in {each.invariant for each in moves_at_rest(sights)}


async def test_unit_that_is_taken_back_from_an_owner_that_asks_no_more_is_found() -> None:
    async with played_fleet() as fleet:
        sights = await moved(fleet)
        ((key, came),) = sights[1].reader.scan(INCOMING)
        settled = msgspec.structs.replace(came, settled=True)
        await fleet.hosts[1].world.store.write(lambda tx: tx.put(INCOMING, key, settled))
        assert list(of_moves(sights)) == []
        (move,) = [each for _, each in sights[0].reader.scan(MOVES)]
        back = msgspec.structs.replace(move, reclaimed=move.generation + 1)
        await fleet.hosts[0].world.store.write(lambda tx: tx.put(MOVES, move.id, back))
        assert Invariant.SETTLED in {each.invariant for each in of_moves(sights)}


async def test_machine_that_was_stopped_twice_for_a_move_is_found() -> None:
    async with played_fleet() as fleet:
        await moved(fleet)
        store = fleet.hosts[1].world.store
        assert list(stopped_again(store, fleet._machine)) == []
        (stop,) = [each for each in store.scan(EVENTS, f"{fleet.machine}/") if each[1].type == "stop"]
        after = msgspec.structs.replace(stop[1], id=EventId(f"{stop[1].id}0"))
        await store.write(lambda tx: tx.put(EVENTS, f"{stop[0]}0", after))
        assert [each.invariant for each in stopped_again(store, fleet._machine)] == [Invariant.OFF_ONCE]


async def test_two_writers_and_a_mounted_volume_that_was_closed_are_found() -> None:
    async with played_fleet() as fleet:
        sights = await moved(fleet)
        (move,) = [each for _, each in sights[0].reader.scan(MOVES)]
        closed = msgspec.structs.replace(move, state=MoveState.GRANTED)
        await fleet.hosts[0].world.store.write(lambda tx: tx.put(MOVES, move.id, closed))
        assert move.machine is not None and move.volume is not None
        twice = [
            NodeSight(node=each.node, reader=each.reader, running=frozenset({move.machine}),
                      mounted=frozenset({move.volume}))
            for each in sights
        ]  # fmt: skip
        kinds = [each.what for each in of_moves(twice) if each.invariant is Invariant.ONE_WRITER]
        assert any("runs at nodes" in what for what in kinds) and any("mounted at" in what for what in kinds)


async def test_two_moves_of_an_app_in_their_turn_at_two_nodes_are_found() -> None:
    async with played_fleet() as fleet:
        sights = await moved(fleet)
        (move,) = [each for _, each in sights[0].reader.scan(MOVES)]
        for number, (id, has_turn) in enumerate(((move.id, True), ("other", True), ("third", False))):
            under_way = msgspec.structs.replace(move, id=id, state=MoveState.PREPARING, has_turn=has_turn)
            await fleet.hosts[number].world.store.write(lambda tx, made=under_way: tx.put(MOVES, made.id, made))  # type: ignore[misc]
        (found,) = of_moves(sights)
        assert found.invariant is Invariant.ONE_AWAY and "third" not in found.what


async def test_zeros_that_nobody_lists_and_the_use_of_damage_that_nobody_accepted_are_found() -> None:
    async with played_fleet() as fleet:
        sights = await moved(fleet)
        volume = VolumeId(fleet._volume)
        zeros = [msgspec.structs.replace(each, holes={volume: ((4096, 4096),)}) for each in sights]
        assert [each.invariant for each in of_moves(zeros)] == [Invariant.ZEROS_SAID]
        damage = DamageRecord(node=fleet.id(0), lost=((0, 65536),), noted_at=0.0)
        store = fleet.hosts[1].world.store
        record = store.get(VOLUMES, volume)
        assert record is not None
        damaged = msgspec.structs.replace(record, damage=damage)
        await store.write(lambda tx: tx.put(VOLUMES, volume, damaged))
        assert [each.what for each in of_moves(zeros)] == ["is mounted, and nobody has accepted what is lost"]
        accepted = msgspec.structs.replace(damaged, damage=msgspec.structs.replace(damage, accepted_at=1.0))
        await store.write(lambda tx: tx.put(VOLUMES, volume, accepted))
        assert list(of_moves(zeros)) == []


async def test_a_missing_signpost_a_lost_write_and_room_for_ever_are_found() -> None:
    async with played_fleet() as fleet:
        sights = await moved(fleet)
        volume = VolumeId(fleet._volume)
        assert list(lost_writes(sights, {volume: 1})) == []
        assert [each.invariant for each in lost_writes(sights, {volume: 1 << 40})] == [Invariant.KEPT]
        await fleet.hosts[0].world.store.write(lambda tx: tx.delete(MOVED, fleet.machine))
        assert Invariant.FOUND in {each.invariant for each in moves_at_rest(sights)}
        ((key, incoming),) = list(sights[1].reader.scan(INCOMING))
        held = msgspec.structs.replace(incoming, holds=Resources(memory_mib=5))
        await fleet.hosts[1].world.store.write(lambda tx: tx.put(INCOMING, key, held))
        assert held_by_incoming(sights[1].reader) == Resources(memory_mib=5)
        assert Invariant.CAPACITY in {each.invariant for each in moves_at_rest(sights)}


async def test_an_order_that_a_node_forgot_or_filled_again_is_found() -> None:
    async with played_fleet() as fleet:
        sights = await moved(fleet)
        record = fleet.worker(1).record(fleet.machine)
        assert list(forgotten_orders(sights, record)) == []
        key, store = f"{record.app}/{record.order}", fleet.hosts[0].world.store
        await store.write(lambda tx: tx.put(BY_ORDER, key, MachineKey(id=MachineId("00000000000bad"))))
        assert ["not" in each.what for each in forgotten_orders(sights, record)] == [True]
        await store.write(lambda tx: tx.delete(BY_ORDER, key))
        assert ["fill it again" in each.what for each in forgotten_orders(sights, record)] == [True]


async def test_a_snapshot_that_is_lost_or_stays_behind_is_found() -> None:
    async with played_fleet() as fleet:
        before = dict(fleet._snapshots)
        sights = await moved(fleet)
        assert list(lost_snapshots(sights, before)) == [] and list(snapshots_at_rest(sights, before)) == []
        snapshot_id = next(each for each, _ in sights[1].reader.scan(SNAPSHOTS))
        record = sights[1].reader.get(SNAPSHOTS, SnapshotId(snapshot_id))
        assert record is not None
        await fleet.hosts[0].world.store.write(lambda tx: tx.put(SNAPSHOTS, record.id, record))
        found = list(snapshots_at_rest(sights, before))
        assert [each.invariant for each in found] == [Invariant.MOVE_ENDS]
        spoilt = [msgspec.structs.replace(each, snapshots={record.id: -1}) for each in sights]
        assert {each.invariant for each in lost_snapshots(spoilt, before)} == {Invariant.KEPT}


async def test_machine_that_goes_back_twice_or_elsewhere_is_found() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].dud = True
        came = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.store.count(MOVES) > 0, 300)
        ((_, back),) = fleet.hosts[1].world.store.scan(MOVES)
        assert await fleet.settled() == []
        sights = fleet._fleet.sights()
        assert back.back_of == came.id and [*went_back_again(sights), *stays_down(sights)] == []
        for number, wrong in (
            (1, msgspec.structs.replace(back, id="again", state=MoveState.DONE)),
            (0, msgspec.structs.replace(back, id="onward", back_of=back.id, state=MoveState.DONE)),
            (2, msgspec.structs.replace(back, id="elsewhere", back_of="other", state=MoveState.DONE)),
        ):
            store = fleet.hosts[number].world.store
            other = msgspec.structs.replace(back, id="other", back_of="", to=fleet.id(1))
            await store.write(lambda tx, wrong=wrong: tx.put(MOVES, wrong.id, wrong))  # type: ignore[misc]
            await store.write(lambda tx, other=other: tx.put(MOVES, "other", other))  # type: ignore[misc]
            assert {each.invariant for each in went_back_again(sights)} == {Invariant.GOES_BACK}
            for key in (wrong.id, "other"):
                await store.write(lambda tx, key=key: tx.delete(MOVES, key))  # type: ignore[misc]


async def test_machine_that_stays_where_it_never_started_is_found() -> None:
    async with played_fleet() as fleet:
        sights = await moved(fleet)
        record = fleet.worker(1).record(fleet.machine)
        down = msgspec.structs.replace(record, state=State.FAILED, running=None)
        await fleet.hosts[1].world.store.write(lambda tx: tx.put(MACHINES, record.id, down))
        assert [each.invariant for each in stays_down(sights)] == [Invariant.GOES_BACK]

"""Orders of moves: refused by name, planned, one at a time."""

import msgspec
import pytest

from hawker.api.contract.move import MOVE_FREE_VOLUME, MOVE_MACHINE, MoveParams, MoveRequest
from hawker.api.contract.move_peer import DIGEST_BLOCKS, HAND_BLOCKS, MovedBlocksRequest
from hawker.api.contract.volume import VolumeParams
from hawker.errors import (
    BadRequest,
    Conflict,
    Fault,
    HawkerError,
    NoDestination,
    NotFound,
    NotServed,
    Unprocessable,
    WrongState,
)
from hawker.machine import State
from hawker.record.machine import MACHINES
from hawker.record.move import INCOMING, MOVED, RETIRED, RETIRED_KEPT_S, MoveState
from hawker.record.volume import VOLUMES
from hawker.sim.node.sim_worker import APP, params
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


@pytest.mark.parametrize(
    ("wish", "error", "why"),
    [
        (MoveRequest(mode="through"), NotServed, "through"),
        (MoveRequest(mode="lazy"), NotServed, "lazy"),
        (MoveRequest(mode="tepid"), Unprocessable, "auto, cold, warm"),
        (MoveRequest(to="00000001"), BadRequest, "already"),
        (MoveRequest(source="00000002"), WrongState, "is at node 00000001"),
        (MoveRequest(to="00000009"), NoDestination, "node 00000009 is silent"),
        (MoveRequest(region="fra"), NoDestination, "no other node of region fra"),
    ],
)
async def test_an_order_not_served_is_refused_by_name(wish: MoveRequest, error: type[HawkerError], why: str) -> None:
    async with played_fleet() as fleet:
        moves = fleet.worker(0).parts.moves
        with pytest.raises(error, match=why):
            await moves.of_volume(fleet.worker(0).record(fleet.machine).app, fleet.free, wish)
        assert moves.list() == []


async def test_a_dry_run_says_where_a_move_would_go_and_changes_nothing() -> None:
    async with played_fleet() as fleet:
        worker, store = fleet.worker(0), fleet.hosts[0].world.store
        before = store.get(MACHINES, fleet.machine)
        made = await worker.api.call(
            MOVE_MACHINE,
            params=params(fleet.machine),
            body=MoveRequest(to=fleet.id(2), limit_mib_per_s=1, dry_run=True),
        )
        assert (made.id, made.state, made.to, made.mode) == ("", "planned", fleet.id(2), "warm")
        assert made.stored_bytes > 0 and made.eta_s == made.stored_bytes / (1 << 20)
        free = VolumeParams(app_name=APP, volume_id=fleet.free)
        planned = await worker.api.call(MOVE_FREE_VOLUME, params=free, body=MoveRequest(dry_run=True))
        assert (planned.state, planned.mode, planned.eta_s) == (
            "planned",
            "cold",
            None,
        ) and "MiB of disk free" in planned.reason
        assert store.get(MACHINES, fleet.machine) == before and worker.parts.moves.list() == []
        with pytest.raises(NoDestination, match="no other node of region fra"):
            await worker.api.call(
                MOVE_MACHINE, params=params(fleet.machine), body=MoveRequest(region="fra", dry_run=True)
            )
        assert (await fleet.ended(0, (await fleet.move(0, 2)).id)).state is MoveState.DONE, "and it can be ordered"


async def test_a_node_that_is_alone_moves_nothing() -> None:
    async with played_fleet() as fleet:
        fleet.worker(0).parts.deps.others._others = None
        with pytest.raises(NotServed, match="in no cluster"):
            await fleet.move(0, 1)


async def test_an_attached_volume_does_not_move_by_itself() -> None:
    async with played_fleet() as fleet:
        at, api = VolumeParams(app_name=APP, volume_id=fleet._volume), fleet.worker(0).api
        with pytest.raises(WrongState, match="hawker machine move"):
            await api.call(MOVE_FREE_VOLUME, params=at, body=MoveRequest())


async def test_an_encrypted_volume_is_sealed_under_the_key_of_its_new_node() -> None:
    async with played_fleet() as fleet:
        keys = [fleet.worker(number).parts.deps.volume_keys for number in range(3)]
        before = fleet.hosts[0].world.store.get(VOLUMES, fleet.free)
        assert before is not None and before.key is not None and keys[0] is not None and keys[1] is not None
        opened = keys[0].open(before.key)
        assert (await fleet.ended(0, (await fleet.move_free(0, 1)).id)).state is MoveState.DONE
        after = fleet.hosts[1].world.store.get(VOLUMES, fleet.free)
        assert after is not None and after.key is not None and after.key != before.key
        assert keys[1].open(after.key) == opened
        with pytest.raises(Fault):
            keys[1].open(before.key)
        ((_, kept),) = fleet.hosts[0].world.store.scan(RETIRED)
        assert kept.key == before.key
        came = [record for _, record in fleet.hosts[1].world.store.scan(INCOMING)]
        assert opened not in msgspec.msgpack.encode(came)


async def test_one_machine_of_an_app_is_away_at_a_time() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        with pytest.raises(Conflict, match="one machine of an app"):
            await fleet.move_free(0, 1)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        assert (await fleet.ended(0, (await fleet.move_free(0, 1)).id)).state is MoveState.DONE


async def test_a_stopped_machine_moves_and_stays_stopped() -> None:
    async with played_fleet() as fleet:
        await fleet.worker(0).stop(fleet.machine)
        await fleet.worker(0).reaches(fleet.machine, State.STOPPED)
        assert (await fleet.ended(0, (await fleet.move(0, 2)).id)).state is MoveState.DONE
        await fleet.worker(2).reaches(fleet.machine, State.STOPPED)
        await fleet.worker(2).start(fleet.machine)
        await fleet.worker(2).reaches(fleet.machine, State.STARTED)
        assert fleet.worker(2).events(fleet.machine).count("migrate/done") == 1
        assert await fleet.settled() == []


async def test_moves_there_and_back_and_on_are_generation_4_and_leave_one_signpost_each() -> None:
    async with played_fleet() as fleet:
        for source, to in ((0, 1), (1, 0), (0, 2)):
            assert (await fleet.ended(source, (await fleet.move(source, to)).id)).state is MoveState.DONE
            await fleet.worker(to).reaches(fleet.machine, State.STARTED)
        assert fleet.worker(2).record(fleet.machine).generation == 4
        posts = [host.world.store.get(MOVED, fleet.machine) for host in fleet.hosts]
        assert [None if post is None else post.to for post in posts] == [fleet.id(2), fleet.id(0), None]
        assert await fleet.settled() == []


async def test_a_retired_file_is_kept_for_a_day() -> None:
    async with played_fleet() as fleet:
        await fleet.ended(0, (await fleet.move_free(0, 1)).id)
        world = fleet.hosts[0].world
        assert (fleet.free, 2) in world.moved_files.retired
        assert world.store.get(VOLUMES, fleet.free) is None and world.store.count(RETIRED) == 1
        ((key, kept),) = list(world.store.scan(RETIRED))
        assert kept.until > fleet._clock.now() + RETIRED_KEPT_S - 60
        over = msgspec.structs.replace(kept, until=fleet._clock.now())
        await world.store.write(lambda tx: tx.put(RETIRED, key, over))
        await fleet._clock.sleep(60)
        assert world.moved_files.retired == {} and world.store.count(RETIRED) == 0


async def test_a_volume_is_read_for_its_own_move_only_while_that_hands_it_over() -> None:
    async with played_fleet() as fleet:
        api = fleet.worker(0).api
        spans = MovedBlocksRequest(generation=2, spans=((0, 1),))
        with pytest.raises(NotFound):
            await api.call(HAND_BLOCKS, params=MoveParams(move_id="01"), body=spans)
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        for call in (HAND_BLOCKS, DIGEST_BLOCKS):
            with pytest.raises(WrongState, match="nothing is handed over"):
                await api.call(call, params=MoveParams(move_id=move.id), body=spans)
            with pytest.raises(NotFound, match="hands over no generation 3"):
                wrong = msgspec.structs.replace(spans, generation=3)
                await api.call(call, params=MoveParams(move_id=move.id), body=wrong)

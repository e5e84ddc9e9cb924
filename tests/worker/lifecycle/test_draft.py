"""Drafts of volumes, filled from a source whose machine writes on: what was on disk is not copied again, and whatever a
source says, nothing is believed that was not compared.
"""

from collections.abc import Callable, Mapping, Sequence

import pytest

from hawker.api.contract.move import LIMIT_MOVE, PAUSE_MOVE, RESUME_MOVE, LimitMoveRequest, MoveParams
from hawker.api.contract.move_peer import OutgoingMove
from hawker.api.failure import ConnectionLost
from hawker.clock import Clock
from hawker.errors import NotFound, Unavailable
from hawker.host.changed_blocks import BlockRange
from hawker.ids import AppName, NodeId
from hawker.machine import State
from hawker.record.move import INCOMING, IncomingRecord, IncomingState, MoveMode, MoveState
from hawker.sim.harness.loop import eventually
from hawker.sim.node.fake_moved_files import PIECES, FakeMovedFiles
from hawker.sim.node.kit import WorkerKit
from hawker.volume.moved_blocks import Digests
from hawker.volume.moved_files import BlockChanges, Lost, MovedFile, MovedFiles, StoredPiece
from hawker.worker.lifecycle.draft import CopyPace, over
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


def incoming() -> IncomingRecord:
    return IncomingRecord(move="01", source=NodeId("00000001"), app=AppName("a"), generation=2, created_at=0.0)


ME = NodeId("00000002")


def test_only_the_sources_own_word_ends_a_move() -> None:
    assert over(Unavailable("it is away"), incoming(), ME) == ""
    assert over(OutgoingMove(state=MoveState.COPYING, generation=2), incoming(), ME) == ""
    assert over(OutgoingMove(state=MoveState.GRANTED, generation=2), incoming(), ME) == ""
    assert "aborted" in over(OutgoingMove(state=MoveState.ABORTED, generation=2), incoming(), ME)
    assert over(OutgoingMove(state=MoveState.COPYING, generation=4), incoming(), ME) != ""
    assert over(OutgoingMove(state=MoveState.DONE, generation=2, to=ME), incoming(), ME) == ""
    assert "chosen node 3" in over(OutgoingMove(state=MoveState.WARMING, generation=2, to="3"), incoming(), ME)
    assert "no such move" in over(NotFound("move not found"), incoming(), ME)


async def test_a_copy_goes_on_after_the_destinations_power_failed() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.moved_files.drafted, 60, 0.0005)
        await fleet.again(1, kept=0.0, power=True)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        assert await fleet.settled() == []


class LyingFiles(FakeMovedFiles):
    """Of a source that answers what cannot be, in one way."""

    lie = ""

    async def changed(self, file: MovedFile, since: str) -> BlockChanges:
        found = await super().changed(file, since)
        return BlockChanges(found.mark, (BlockRange(1 << 40, 1),)) if self.lie == "changed" and since else found

    async def digests(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Digests:
        found = await super().digests(file, spans, lost)
        if self.lie == "stands still":
            return Digests(0, found.of)
        return Digests(found.upto, {**found.of, 1 << 30: bytes(16)}) if self.lie == "digests" else found

    async def blocks(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Mapping[int, bytes]:
        found = await super().blocks(file, spans, lost)
        if self.lie == "short":
            return {block: data[:100] for block, data in found.items()}
        return {**found, 9: found[min(found)]} if self.lie == "blocks" and found else found


@pytest.mark.parametrize("lie", ["changed", "stands still", "digests", "short", "blocks"])
async def test_a_source_that_answers_what_cannot_be_ends_in_an_aborted_move(lie: str) -> None:
    def lying(files: MovedFiles) -> MovedFiles:
        assert isinstance(files, FakeMovedFiles)
        files.__class__ = LyingFiles
        LyingFiles.lie = lie
        return files

    async with played_fleet(WorkerKit(moved_files=lying)) as fleet:
        fleet.hosts[1].world.moved_files.spoils = 10**9  # so that it is copied again and again
        move = await fleet.move(0, 1)
        assert move.mode == MoveMode.WARM
        ended = await fleet.ended(0, move.id)
        assert ended.state is MoveState.ABORTED, ended
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        assert await fleet.settled() == []


async def test_a_machine_runs_while_its_volume_is_copied_and_is_off_for_what_it_wrote_since() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)

        def warm() -> bool:
            return any(each.state is IncomingState.WARM for _, each in fleet.hosts[1].world.store.scan(INCOMING))

        await eventually(fleet._clock, warm, 60, 0.005)
        assert fleet.hosts[0].sight().running == {fleet.machine}
        ended = await fleet.ended(0, move.id)
        assert ended.state is MoveState.DONE and ended.warm_at is not None and ended.away_at is not None
        assert ended.warm_at < ended.away_at
        assert await fleet.settled() == []


async def test_a_source_that_was_killed_in_the_copy_has_all_of_it_compared_again() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)

        def warming() -> bool:
            return bool(fleet.hosts[1].world.moved_files.drafted)

        await eventually(fleet._clock, warming, 60, 0.0005)
        await fleet.again(0, kept=1.0)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        assert await fleet.settled() == []


class LosingFiles(FakeMovedFiles):
    """Of a source whose connection is lost at the first question of each kind, before it has answered."""

    lost: set[str]

    def _lose(self, question: str) -> None:
        if question not in LosingFiles.lost:
            LosingFiles.lost.add(question)
            raise ConnectionLost("the connection was lost")

    async def piece(self, file: MovedFile, offset: int, count: int, lost: Lost = None) -> StoredPiece | None:
        self._lose("piece")
        return await super().piece(file, offset, count, lost)

    async def changed(self, file: MovedFile, since: str) -> BlockChanges:
        self._lose("changed")
        return await super().changed(file, since)

    async def digests(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Digests:
        self._lose("digests")
        return await super().digests(file, spans, lost)

    async def blocks(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Mapping[int, bytes]:
        self._lose("blocks")
        return await super().blocks(file, spans, lost)


async def test_a_source_that_goes_in_the_middle_of_an_answer_is_asked_again() -> None:
    def losing(files: MovedFiles) -> MovedFiles:
        files.__class__ = LosingFiles
        LosingFiles.lost = set()
        return files

    async with played_fleet(WorkerKit(moved_files=losing)) as fleet:
        fleet.hosts[1].world.moved_files.spoils = 1  # so that blocks are asked for, too
        move = await fleet.move(0, 1)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        assert LosingFiles.lost == {"piece", "changed", "digests", "blocks"}
        assert await fleet.settled() == []


class CountingFiles(FakeMovedFiles):
    """How many blocks were compared while a machine ran, and after its end."""

    compared: dict[bool, int]
    looks = 0
    runs: Callable[[], bool]

    async def keep_watch(self, file: MovedFile) -> None:
        CountingFiles.looks += CountingFiles.runs()

    async def digests(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Digests:
        self.compared[CountingFiles.runs()] += sum(each.count for each in spans)
        return await super().digests(file, spans, lost)


def counting(files: MovedFiles) -> MovedFiles:
    files.__class__ = CountingFiles
    CountingFiles.compared, CountingFiles.looks = {True: 0, False: 0}, 0
    return files


async def test_a_source_that_missed_a_change_watches_anew_and_all_is_compared_while_the_machine_runs() -> None:
    async with played_fleet(WorkerKit(moved_files=counting)) as fleet:
        fleet.hosts[0].world.moved_files.misses = 2
        CountingFiles.runs = lambda: bool(fleet.hosts[0].sight().running)
        move = await fleet.move(0, 1)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        assert fleet.hosts[0].world.moved_files.misses == 0
        assert CountingFiles.looks > 0  # however long a copy takes, the kernel need not remember all of it
        assert CountingFiles.compared[True] >= 2 * PIECES and CountingFiles.compared[False] < PIECES
        assert await fleet.settled() == []


class SlowFiles(FakeMovedFiles):
    """Of a node that writes a piece in a second and a half."""

    clock: Clock

    async def write(self, move: str, piece: StoredPiece) -> None:
        await self.clock.sleep(1.5)
        await super().write(move, piece)


def slow(files: MovedFiles) -> MovedFiles:
    files.__class__ = SlowFiles
    return files


async def test_a_destination_copies_nothing_while_the_source_says_paused_and_obeys_its_newest_limit() -> None:
    async with played_fleet(WorkerKit(moved_files=slow)) as fleet:
        SlowFiles.clock = fleet._clock
        move = await fleet.move(0, 1)
        at, api, store = MoveParams(move_id=move.id), fleet.worker(0).api, fleet.hosts[1].world.store
        files = fleet.hosts[1].world.moved_files
        await eventually(fleet._clock, lambda: len(files.drafted.get(move.id, ())) > 2, 60)
        await api.call(PAUSE_MOVE, params=at)
        await fleet._clock.sleep(10)
        before = store.get(INCOMING, move.id)
        await fleet._clock.sleep(120)
        paused = store.get(INCOMING, move.id)
        assert paused is not None and paused == before and len(files.drafted[move.id]) < PIECES
        await api.call(LIMIT_MOVE, params=at, body=LimitMoveRequest(limit_mib_per_s=7))
        await api.call(RESUME_MOVE, params=at)
        pace = CopyPace(fleet.worker(1).parts.deps, paused)
        await fleet._clock.sleep(2)
        await pace.note()
        assert (paused.limit_mib_per_s, pace._limit) == (0, 7)
        ended = await fleet.ended(0, move.id)
        assert (ended.state, ended.limit_mib_per_s) == (MoveState.DONE, 7)
        assert await fleet.settled() == []

"""The output of machines on its way into their app's log: each piece once, over restarts of machines and of the
daemon."""

import math
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.ids import AppName, EventId, InstanceId, MachineId
from hawker.logs import app_log
from hawker.logs.app_log import AppLog, LogLimits, LogPart
from hawker.logs.line import PROXY, Cursor, KeptLine
from hawker.logs.machine_logs import MachineLogs
from hawker.record.app import APPS, AppRecord
from hawker.record.machine import BY_APP, DESTROYED, EVENTS, MACHINES, Detail, EventRecord, MachineKey, Running
from hawker.runtime.driver import Exit, OutputChunk
from hawker.store.contract import Bucket, Tx
from hawker.store.memory_store import MemoryStore
from tests.waiting import eventually
from tests.worker.machines import NOW, machine

pytestmark = pytest.mark.anyio
APP, OTHER = AppName("stall"), AppName("other")
WORD = KeptLine(at=int(NOW * 1e9), machine="", stream=0, text="word", provider=PROXY)
RECORD = machine()
ID = RECORD.id


class Ring:
    """A driver whose only machine wrote `chunks`."""

    def __init__(self) -> None:
        self.chunks = list[OutputChunk]()
        self.broken = False
        self.reads = 0

    def write(self, *texts: str) -> None:
        for text in texts:
            place = self.chunks[-1].position + 1 if self.chunks else 0
            self.chunks.append(OutputChunk(position=place, at=NOW + place, stream=1, process=0, data=text.encode()))

    def output(self, machine_id: MachineId, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        if self.broken:
            raise Unavailable("no ring")
        self.reads += 1
        return [chunk for chunk in self.chunks if chunk.position > after and machine_id == ID][:100]


class Desk:
    """A node's store and files, over any number of daemons."""

    def __init__(self, directory: Path) -> None:
        self.store, self.ring, self.directory = MemoryStore(), Ring(), directory

    async def put(self, bucket: Any, key: str, value: Any) -> None:
        await self.store.write(lambda tx: tx.put(bucket, key, value))

    async def drop(self, bucket: Any, key: str) -> None:
        await self.store.write(lambda tx: tx.delete(bucket, key))

    async def ends(self, logs: MachineLogs) -> None:
        """With code 0."""
        running = Running(instance_id=InstanceId("I1"), exit=Exit(exit_code=0, exited_at=NOW))
        detail = Detail(exit=running.exit)
        event = EventRecord(
            id=EventId("01E"), type="exit", status="stopped", source="flyd", at=NOW + 999, detail=detail
        )
        await self.put(EVENTS, f"{ID}/01E", event)
        await self.put(MACHINES, ID, machine(running=running))
        logs.changed(ID)

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[MachineLogs]:
        logs = MachineLogs(self.directory, self.store, self.ring, SystemClock(), LogLimits())  # type: ignore[arg-type]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(logs.serve)
            yield logs
            tasks.cancel_scope.cancel()


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Whoever drains or catches up waits for as long as a busy host takes for one look."""
    monkeypatch.setattr("hawker.logs.machine_logs._DRAIN_S", 60.0)
    monkeypatch.setattr("hawker.logs.machine_logs._CATCH_UP_S", 60.0)
    desk = Desk(tmp_path / "logs")
    app = AppRecord(id="a1", number=1, name=APP, org="personal", network="", network_id=1, created_at=NOW)
    await desk.put(APPS, APP, app)
    await desk.put(MACHINES, ID, RECORD)
    await desk.put(BY_APP, f"{APP}/{ID}", MachineKey(id=ID))
    return desk


async def told(logs: MachineLogs) -> list[str]:
    texts, part = list[str](), LogPart(lines=(), position=-1, more=True)
    while part.more:
        part = await logs.read(APP, part.position, most_lines=200_000, most_bytes=1 << 30)
        texts += [each.line.text for each in part.lines]
    return texts


async def until(logs: MachineLogs, *texts: str) -> None:
    async def there() -> bool:
        return await told(logs) == list(texts)

    await eventually(there)


async def test_output_is_taken_as_it_comes_and_each_piece_once_over_daemons(desk: Desk) -> None:
    desk.ring.write("one\n", "tw")
    async with desk.daemon() as logs:
        await until(logs, "one", "tw")
        desk.ring.write("o\n")
        await until(logs, "one", "tw", "o")
    desk.ring.write("three\n")
    async with desk.daemon() as logs:
        await until(logs, "one", "tw", "o", "three")


async def test_words_of_the_proxy_are_kept_beside_the_output_also_when_nothing_runs(desk: Desk) -> None:
    def word(text: str) -> KeptLine:
        return KeptLine(at=int(NOW * 1e9), machine="", stream=0, text=text, level="error", provider=PROXY)

    async with desk.daemon() as logs:
        desk.ring.write("one\n")
        await until(logs, "one")
        logs.say(APP, word("PR01 nobody"))
        await eventually(lambda: logs.counts["kept"] == 2)
        await desk.drop(MACHINES, ID)
        for number in range(150):
            logs.say(APP, word(f"HQ01 {number}"))
        await eventually(lambda: logs.counts["kept"] >= 102)
        logs.say(AppName("ghost"), word("nobody"))
        texts = await told(logs)
    assert set(texts[:2]) == {"one", "PR01 nobody"} and texts[2:] == [f"HQ01 {number}" for number in range(100)]


async def test_a_reader_waits_for_the_next_line_of_a_machine_at_rest(desk: Desk) -> None:
    desk.ring.write("one\n")
    async with desk.daemon() as logs:
        await until(logs, "one")
        after = (await logs.tail(APP, 1)).position
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(logs.wait, APP, after, 60.0)
            desk.ring.write("two\n")
        await until(logs, "one", "two")


async def test_a_reader_of_a_machine_that_rests_for_a_while_hears_of_its_next_line_at_once(desk: Desk) -> None:
    """Looks that find nothing come between."""
    desk.ring.write("one\n")
    async with desk.daemon() as logs:
        await until(logs, "one")
        after, looks = (await logs.tail(APP, 1)).position, desk.ring.reads + 3
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(logs.wait, APP, after, 600.0)
                await eventually(lambda: desk.ring.reads >= looks)
                desk.ring.write("two\n")


async def test_last_lines_of_a_quiet_machine_are_looked_for_as_long_as_one_may(desk: Desk) -> None:
    kept = AppLog(desk.directory / "a1", LogLimits(), NOW)
    kept.append([WORD], {})
    for _ in range(10):
        kept.append([replace(WORD, machine="m1", text="x" * (1 << 20))], {})
    async with desk.daemon() as logs:
        at_once = await logs.tail(APP, 1, wanted=lambda each: not each.machine)
        part = await logs.tail(APP, 1, wanted=lambda each: not each.machine, within_s=60.0)
    assert not at_once.lines and [each.line for each in part.lines] == [WORD]
    assert part.position == at_once.position == kept.position and not part.more


async def test_a_reader_that_begins_finds_what_was_written_before_it_asked(desk: Desk) -> None:
    """Looks at a machine at rest are 1.6 s apart."""
    async with desk.daemon() as logs:
        desk.ring.write("first\n")
        await until(logs, "first")
        looks = desk.ring.reads
        await eventually(lambda: desk.ring.reads >= looks + 4)
        for number in range(3):
            desk.ring.write(f"{number}\n")
            await logs.catch_up(APP)
            assert (await told(logs))[-1] == str(number)


async def test_a_reader_of_an_app_that_rests_waits_for_nothing(desk: Desk) -> None:
    async with desk.daemon() as logs:
        await desk.ends(logs)
        await eventually(lambda: not logs._apps[APP].busy)
        looks = desk.ring.reads
        await logs.catch_up(APP)
        await logs.catch_up(AppName("nobody"))
        assert desk.ring.reads == looks


async def test_the_end_of_a_machine_is_told_after_all_that_it_wrote(desk: Desk) -> None:
    async with desk.daemon() as logs:
        desk.ring.write(*(f"{number}\n" for number in range(350)), "rest")
        await desk.ends(logs)
        numbers = [str(number) for number in range(350)]
        await until(logs, *numbers, "rest", "Main child exited normally with code: 0")
    async with desk.daemon() as logs:
        assert len(await told(logs)) == 352


def line_counts(directory: Path) -> list[int]:
    """Of each frame."""
    counts = list[int]()
    for segment in sorted((directory / "a1").iterdir()):
        with app_log._opened(segment) as fd:
            counts += [frame.count for frame in app_log._frames(fd, 0, None)]
    return counts


async def test_bare_newlines_are_taken_in_frames_of_bounded_length(desk: Desk) -> None:
    desk.ring.write(*["\n" * 16_384] * 32)
    async with desk.daemon() as logs:
        await desk.ends(logs)
        await eventually(lambda: logs.counts["kept"] > 32 * 16_384, 20)
        (last,) = (await logs.tail(APP, 1)).lines
    counts = line_counts(desk.directory)
    assert max(counts) < 100_000 and sum(counts) == 32 * 16_384 + 1
    assert last.line.text == "Main child exited normally with code: 0"


async def test_look_at_a_machine_that_runs_takes_one_frame_of_bare_newlines(desk: Desk) -> None:
    desk.ring.write(*["\n" * 16_384] * 32)
    async with desk.daemon() as logs:
        await eventually(lambda: logs.counts["kept"] > 0, 20)
    assert max(line_counts(desk.directory)) < 100_000


async def test_frame_that_fails_takes_nothing_of_those_before_it_and_comes_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [str(number) for number in range(140_000)]
    desk.ring.write(*("".join(f"{text}\n" for text in texts[at : at + 1000]) for at in range(0, 140_000, 1000)), "rest")
    append, left = AppLog.append, [True, False, True]

    def refused_once(log: AppLog, lines: Sequence[KeptLine], cursors: Mapping[str, Cursor]) -> None:
        if left and not left.pop():
            raise OSError(28, "No space left on device")
        append(log, lines, cursors)

    monkeypatch.setattr(AppLog, "append", refused_once)
    async with desk.daemon() as logs:
        await desk.ends(logs)
        await eventually(lambda: logs.counts["kept"] == 140_002, 20)
        found = await told(logs)
    assert len(line_counts(desk.directory)) > 2
    assert found == [*texts, "rest", "Main child exited normally with code: 0"]


async def test_the_next_start_does_not_read_the_ring_of_an_ended_instance_again(desk: Desk) -> None:
    """It would wait for its turn among all machines of the app that write."""
    desk.ring.write(*(f"line {number}\n" for number in range(250)))
    async with desk.daemon() as logs:
        await desk.ends(logs)
        end = "Main child exited normally with code: 0"
        await until(logs, *(f"line {number}" for number in range(250)), end)
        reads = desk.ring.reads
        await logs.drain(ID, "I2")
        assert desk.ring.reads == reads
        await logs.drain(ID)
        assert desk.ring.reads == reads


async def test_a_ring_that_goes_is_taken_whole_and_the_next_instance_begins_anew(desk: Desk) -> None:
    async with desk.daemon() as logs:
        desk.ring.write("old\n")
        await logs.drain(ID, "I2")
        desk.ring.chunks.clear()
        desk.ring.write("new\n")
        logs.changed(ID)
        await desk.put(MACHINES, ID, machine(running=Running(instance_id=InstanceId("I2"))))
        logs.changed(ID)
        await until(logs, "old", "new")
        await logs.drain(ID, "I2")
        desk.ring.write("of the same instance\n")
        await until(logs, "old", "new", "of the same instance")


async def test_a_machine_that_is_gone_has_its_lines_and_its_last_word(desk: Desk) -> None:
    async with desk.daemon() as logs:
        desk.ring.write("bye\n")
        await logs.drain(ID)
        desk.ring.broken = True
        gone = EventRecord(id=EventId("01F"), type="destroy", status="destroyed", source="flyd", at=NOW)
        await desk.put(EVENTS, f"{ID}/01F", gone)
        await desk.drop(MACHINES, ID)
        await desk.put(DESTROYED, ID, RECORD)
        logs.changed(ID)
        await until(logs, "bye", "machine destroyed (destroy)")


async def test_lines_written_over_before_they_were_taken_are_counted_and_told(desk: Desk) -> None:
    desk.ring.write("a\n", "b\n", "c\n")
    desk.ring.chunks = desk.ring.chunks[2:]
    async with desk.daemon() as logs:
        await until(logs, "2 pieces of output were lost: the machine wrote faster than they could be kept", "c")
        assert logs.counts["lost"] == 2


async def test_a_log_goes_with_its_app_and_is_no_other_apps_of_its_name(desk: Desk) -> None:
    desk.ring.write("secret\n")
    async with desk.daemon() as logs:
        await until(logs, "secret")
    await desk.drop(MACHINES, ID)
    app = desk.store.get(APPS, APP)
    assert app is not None
    await desk.drop(APPS, APP)
    async with desk.daemon() as logs:
        await eventually(lambda: _empty(desk.directory))
        assert await told(logs) == []


async def _empty(directory: Path) -> bool:
    return os.listdir(directory) == []


async def test_a_log_that_cannot_be_written_holds_nothing_up(desk: Desk) -> None:
    desk.directory.write_text("no directory")
    desk.ring.write("one\n")
    async with desk.daemon() as logs:
        logs.changed(ID)
        await logs.drain(ID)
        desk.directory.unlink()
        logs.changed(ID)
        await until(logs, "one")


@pytest.mark.parametrize("at", [2.0**64 / 1e9, math.inf, math.nan, 1e300])
async def test_output_that_cannot_be_kept_troubles_no_other_app_and_no_daemon(desk: Desk, at: float) -> None:
    await _add_other(desk)
    desk.ring.chunks.append(OutputChunk(position=0, at=at, stream=1, process=0, data=b"poison\n"))
    async with desk.daemon() as logs:
        await eventually(lambda: _read(desk.ring))
        await logs.drain(ID)
        logs.say(OTHER, WORD)
        await eventually(lambda: _has(logs, OTHER))
        desk.ring.chunks.clear()
        desk.ring.write("one\n")
        await until(logs, "one")


async def _add_other(desk: Desk) -> None:
    app = AppRecord(id="a2", number=2, name=OTHER, org="personal", network="", network_id=2, created_at=NOW)
    await desk.put(APPS, OTHER, app)


async def _read(ring: Ring) -> bool:
    return ring.reads > 0


async def _has(logs: MachineLogs, app: AppName) -> bool:
    return bool((await logs.tail(app, 1)).lines)


async def test_line_without_an_end_from_a_time_to_come_is_not_held_open(desk: Desk) -> None:
    desk.ring.chunks.append(OutputChunk(position=0, at=NOW + 1e9, stream=1, process=0, data=b"tw"))
    async with desk.daemon() as logs:
        await until(logs, "tw")


async def test_log_whose_cursors_make_no_sense_ends_no_daemon(desk: Desk) -> None:
    await desk.drop(MACHINES, ID)
    await _add_other(desk)
    broken: Any = {ID: "no cursor"}
    AppLog(desk.directory / "a1", LogLimits(), NOW).append((), broken)
    (desk.directory / "of an app that is gone").mkdir()
    async with desk.daemon() as logs:
        await eventually(lambda: _trimmed(desk.directory))
        logs.say(APP, WORD)
        logs.say(OTHER, WORD)
        await eventually(lambda: _has(logs, OTHER))


async def _trimmed(directory: Path) -> bool:
    return not (directory / "of an app that is gone").exists()


async def test_a_daemon_that_finds_many_destroyed_machines_lets_others_run(desk: Desk) -> None:
    def fill(tx: Tx) -> None:
        for number in range(200):
            tx.put(DESTROYED, f"{number:014x}", replace(RECORD, id=MachineId(f"{number:014x}")))

    await desk.store.write(fill)
    read, most, get = list[str](), list[int](), desk.store.get
    scan = desk.store.scan

    def counted_get(bucket: Bucket[Any], key: str) -> Any:
        read.append(key)
        return get(bucket, key)

    def counted_scan(bucket: Bucket[Any], prefix: str = "", **options: Any) -> Any:
        found = list(scan(bucket, prefix, **options))
        read.extend(key for key, _ in found)
        return iter(found)

    desk.store.get, desk.store.scan = counted_get, counted_scan  # type: ignore[method-assign]

    async def take_turns() -> None:
        while True:
            most.append(len(read))
            read.clear()
            await checkpoint()

    async with anyio.create_task_group() as tasks, desk.daemon() as logs:
        tasks.start_soon(take_turns)
        desk.ring.write("a")
        await until(logs, "a")
        tasks.cancel_scope.cancel()
    assert sum(most) >= 600 and max(most) < 100

import os
from pathlib import Path

import anyio
import msgspec
import pytest

from hawker.audit.audit_log import (
    BEGINNING,
    AuditEntry,
    AuditLog,
    AuditPiece,
    WantedEntries,
    broken,
    line_of,
    lines,
    read_line,
    read_piece,
    sealed,
    segments,
)
from hawker.clock import ManualClock
from hawker.errors import Unavailable


def chain(count: int) -> list[bytes]:
    found, before = [], BEGINNING
    for number in range(1, count + 1):
        entry = sealed(AuditEntry(number=number, at="t", what="exec_machine", who="ann", before=before))
        found.append(line_of(entry))
        before = entry.hash
    return found


def test_a_whole_chain_holds_and_so_does_what_is_left_of_one_after_rotation() -> None:
    lines = chain(5)
    assert broken(lines) is None and broken(lines[2:]) is None and broken([]) is None


@pytest.mark.parametrize("place", [1, 2, 4])
def test_an_entry_that_was_changed_is_found(place: int) -> None:
    lines = chain(5)
    lines[place] = lines[place].replace(b"ann", b"eve")
    found = broken(lines)
    assert found is not None and (found.line, found.number, found.why) == (place + 1, place + 1, "it was changed")


def test_an_entry_with_a_new_hash_breaks_the_chain_at_the_next() -> None:
    lines = chain(5)
    lines[2] = line_of(sealed(msgspec.structs.replace(read_line(lines[2]), who="eve")))
    found = broken(lines)
    assert found is not None and (found.line, found.why) == (4, "it does not follow entry 3")


def test_an_entry_that_is_missing_moved_or_torn_is_found() -> None:
    lines = chain(5)
    for bad in (lines[:2] + lines[3:], [lines[0], lines[2], lines[1]], [*lines[:2], lines[1], *lines[2:]]):
        found = broken(bad)
        assert found is not None and found.line in (2, 3)
    torn = broken([*lines[:2], lines[2][:-20]])
    assert torn is not None and torn.why == "this is no entry"


def test_a_field_that_was_added_is_found() -> None:
    lines = chain(2)
    lines[1] = lines[1].replace(b"{", b'{"more":1,', 1)
    found = broken(lines)
    assert found is not None and found.why == "it was changed"


pytestmark = pytest.mark.anyio


def opened(place: Path, *, segment_bytes: int = 1 << 20, most_bytes: int = 4 << 20) -> AuditLog:
    log = AuditLog(place / "audit", ManualClock(), most_bytes, segment_bytes)
    log.open()
    return log


def whats(place: Path) -> list[str]:
    return [read_line(line).what for line in lines(place / "audit")]


async def test_entries_are_there_at_once_and_the_chain_goes_on_over_daemons(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(what="one", who="ann", things={"app_name": "shop"})
    await log.sync()
    log.append(what="two")
    assert whats(tmp_path) == ["one", "two"]  # a daemon that is killed now has lost nothing
    log = opened(tmp_path)
    log.append(what="three")
    assert whats(tmp_path) == ["one", "two", "three"] and broken(lines(tmp_path / "audit")) is None
    assert segments(tmp_path / "audit")[0].stat().st_mode & 0o777 == 0o600


async def test_a_line_that_a_crash_tore_is_cut_off_and_told(tmp_path: Path) -> None:
    opened(tmp_path).append(what="one")
    (segment,) = segments(tmp_path / "audit")
    with segment.open("ab") as file:
        file.write(b'{"number":2,"at":"20')
    log = opened(tmp_path)
    log.append(what="two")
    assert whats(tmp_path) == ["one", "torn line cut off", "two"] and broken(lines(tmp_path / "audit")) is None


async def test_long_text_is_clipped_and_says_so(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(what="one", who="a" * 257, things={"machine_id": "\x01" * 20_000, "app_name": "s" * 256})
    (line,) = lines(tmp_path / "audit")
    entry = read_line(line)
    assert entry.who == "a" * 256 + "... (257 characters)"
    assert entry.things == {"machine_id": "\x01" * 256 + "... (20000 characters)", "app_name": "s" * 256}
    assert len(line) < 4096 and broken([line]) is None


async def test_last_line_of_any_length_is_found_and_a_torn_one_is_cut_at_its_beginning(tmp_path: Path) -> None:
    opened(tmp_path).append(what="one")
    (segment,) = segments(tmp_path / "audit")
    first = read_line(segment.read_bytes())
    long = sealed(AuditEntry(number=2, at="t", what="two", things={"x": "\x01" * 50_000}, before=first.hash))
    torn = line_of(long)[:-1]
    segment.write_bytes(line_of(first) + line_of(long) + torn)
    log = opened(tmp_path)
    log.append(what="three")
    assert whats(tmp_path) == ["one", "two", "torn line cut off", "three"]
    assert broken(lines(tmp_path / "audit")) is None
    cut = [read_line(line) for line in lines(tmp_path / "audit")][2]
    assert cut.things == {"bytes": str(len(torn))}


async def test_segment_with_nothing_but_a_torn_line_keeps_its_place(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "audit-0000000000000500.jsonl").write_bytes(b"\0" * 200_000)
    opened(tmp_path)
    assert [segment.name for segment in segments(tmp_path / "audit")] == ["audit-0000000000000500.jsonl"]
    (entry,) = map(read_line, lines(tmp_path / "audit"))
    assert (entry.number, entry.what, entry.things) == (500, "torn line cut off", {"bytes": "200000"})


@pytest.mark.parametrize(
    "last",
    [b"\xff what\n", b"x" * 200_000 + b"\n", line_of(AuditEntry(number=3, at="", what=""))],
    ids=["short", "long", "of a chain that an older daemon began anew"],
)
async def test_new_chain_goes_on_with_numbers_so_that_no_later_segment_is_taken_for_an_old_one(
    tmp_path: Path, last: bytes
) -> None:
    sizes = {"segment_bytes": 2000, "most_bytes": 6000}
    log = opened(tmp_path, **sizes)
    for number in range(100):
        log.append(what=f"call {number}")
    newest = segments(tmp_path / "audit")[-1]
    with newest.open("ab") as file:
        file.write(last)
    log = opened(tmp_path, **sizes)
    for number in range(100):
        log.append(what=f"later {number}")
        assert os.fstat(log._fd).st_nlink == 1
    assert segments(tmp_path / "audit")[0] > newest
    assert whats(tmp_path)[-1] == "later 99" and broken(lines(tmp_path / "audit")) is None


async def test_a_chain_that_begins_anew_says_so(tmp_path: Path) -> None:
    opened(tmp_path).append(what="one")
    (segment,) = segments(tmp_path / "audit")
    with segment.open("ab") as file:
        file.write(b"\xff what\n")
    opened(tmp_path)
    *_, line = lines(tmp_path / "audit")
    entry = read_line(line)
    assert (entry.number, entry.what, entry.things) == (3, "new chain begun", {"file": segment.name})


async def test_segment_that_is_written_is_never_dropped(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=2000, most_bytes=6000)
    for number in range(5, 9):
        (tmp_path / "audit" / f"audit-{number:016}.jsonl").write_bytes(b"strange\n")
    log.append(what="one", things={"x": "y" * 200})
    log._drop_oldest()
    assert os.fstat(log._fd).st_nlink == 1


async def test_full_disk_at_a_start_that_cuts_a_torn_line_delays_no_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path).append(what="one")
    (segment,) = segments(tmp_path / "audit")
    with segment.open("ab") as file:
        file.write(b"torn")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: 0)
        log = opened(tmp_path)
    log.append(what="two")
    assert [read_line(line).lost for line in lines(tmp_path / "audit")] == [0, 1]


async def test_the_log_has_a_bound_and_what_is_left_is_a_chain(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=2000, most_bytes=6000)
    for number in range(100):
        log.append(what=f"call {number}")
    assert len(segments(tmp_path / "audit")) == 3
    assert sum(segment.stat().st_size for segment in segments(tmp_path / "audit")) <= 6000
    assert whats(tmp_path)[-1] == "call 99" and broken(lines(tmp_path / "audit")) is None


async def test_a_full_disk_leaves_no_half_line_and_the_next_entry_counts_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    log.append(what="one")
    whole = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: whole(fd, data[:7]))
        for _ in range(2):
            with pytest.raises(Unavailable, match="nothing was done"):
                log.append(what="lost")
    log.append(what="two")
    assert [read_line(line).lost for line in lines(tmp_path / "audit")] == [0, 2]
    assert broken(lines(tmp_path / "audit")) is None


async def test_segment_that_cannot_be_begun_refuses_one_entry_and_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(24, "Too many open files")

    log = opened(tmp_path, segment_bytes=300)
    log.append(what="one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        with pytest.raises(Unavailable, match="nothing was done"):
            log.append(what="two", things={"app_name": "a" * 200})
        await log.sync()
    log.append(what="three", things={"app_name": "a" * 200})
    await log.sync()
    assert whats(tmp_path) == ["one", "three"] and len(segments(tmp_path / "audit")) == 2
    assert broken(lines(tmp_path / "audit")) is None


async def test_callers_that_wait_together_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, synced = opened(tmp_path), list[int]()
    monkeypatch.setattr(os, "fdatasync", synced.append)

    async def call() -> None:
        log.append(what="call")
        await log.sync()

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(call)
    assert 1 <= len(synced) < 20


ALL = WantedEntries()


def written(directory: Path, entries: int, segment_bytes: int = 4096) -> AuditLog:
    clock = ManualClock()
    log = AuditLog(directory, clock, segment_bytes * 100, segment_bytes)
    log.open()
    for number in range(entries):
        log.append(what=f"call{number}", who="ann" if number % 2 else "bob", things={"app_name": f"a{number % 3}"})
        clock.advance(1)
    return log


def pieces(
    directory: Path, selection: WantedEntries = ALL, *, most_bytes: int, most_scanned: int = 1 << 20
) -> list[AuditPiece]:
    found = [read_piece(directory, selection, None, most_bytes=most_bytes, most_scanned=most_scanned)]
    while found[-1].more:
        after = found[-1].position
        found.append(read_piece(directory, selection, after, most_bytes=most_bytes, most_scanned=most_scanned))
    return found


@pytest.mark.parametrize("most_bytes", [1, 500, 5000, 1 << 20])
@pytest.mark.parametrize("most_scanned", [1, 700, 1 << 20])
def test_every_entry_comes_once_however_the_log_is_cut(tmp_path: Path, most_bytes: int, most_scanned: int) -> None:
    written(tmp_path / "audit", 60)
    assert len(segments(tmp_path / "audit")) > 2
    found = pieces(tmp_path / "audit", most_bytes=most_bytes, most_scanned=most_scanned)
    assert [each.entry.number for piece in found for each in piece.found] == list(range(1, 61))
    assert not [piece.broken for piece in found if piece.broken]
    assert all(sum(len(each.line) for each in piece.found[1:]) <= most_bytes for piece in found)


def test_a_piece_goes_on_with_what_came_since(tmp_path: Path) -> None:
    log = written(tmp_path / "audit", 3)
    first = read_piece(tmp_path / "audit", ALL, None, most_bytes=1 << 20)
    assert not read_piece(tmp_path / "audit", ALL, first.position, most_bytes=1 << 20).found
    log.append(what="late")
    later = read_piece(tmp_path / "audit", ALL, first.position, most_bytes=1 << 20)
    assert [each.entry.what for each in later.found] == ["late"]


@pytest.mark.parametrize("edited", range(1, 60))
def test_an_edited_entry_is_found_at_the_edge_of_any_piece(tmp_path: Path, edited: int) -> None:
    written(tmp_path / "audit", 60)
    for segment in segments(tmp_path / "audit"):
        segment.write_bytes(segment.read_bytes().replace(b'"call%d"' % edited, b'"cal1%d"' % edited))
    broken = [piece.broken for piece in pieces(tmp_path / "audit", most_bytes=1) if piece.broken]
    assert [(each.number, each.why) for each in broken] == [(edited + 1, "it was changed")]


def test_an_entry_that_is_taken_out_between_two_pieces_is_found(tmp_path: Path) -> None:
    written(tmp_path / "audit", 20, segment_bytes=1 << 20)
    (segment,) = segments(tmp_path / "audit")
    first = read_piece(tmp_path / "audit", ALL, None, most_bytes=1)
    held = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(held[0] + b"".join(held[2:]))
    second = read_piece(tmp_path / "audit", ALL, first.position, most_bytes=1)
    assert second.broken is not None and second.broken.why == "it does not follow entry 1"


def test_a_line_that_is_no_entry_is_told_and_named(tmp_path: Path) -> None:
    written(tmp_path / "audit", 2, segment_bytes=1 << 20)
    (segment,) = segments(tmp_path / "audit")
    segment.write_bytes(segment.read_bytes() + b"\xff\x00 what\n")
    piece = read_piece(tmp_path / "audit", ALL, None, most_bytes=1 << 20)
    assert piece.broken is not None and piece.broken.why == "this is no entry"
    assert piece.found[-1].entry.what.startswith("(no entry")


@pytest.mark.parametrize("at", [0, 1, 17, 33, 58, 59])
def test_segments_before_a_moment_are_not_read_and_nothing_after_it_is_left_out(tmp_path: Path, at: int) -> None:
    written(tmp_path / "audit", 60)
    all_of_it = read_piece(tmp_path / "audit", ALL, None, most_bytes=1 << 20).found
    since = all_of_it[at].entry.at
    found = pieces(tmp_path / "audit", WantedEntries(since=since), most_bytes=1 << 20)
    assert [each.entry.number for piece in found for each in piece.found] == list(range(at + 1, 61))


def test_a_log_that_was_rotated_away_meanwhile_goes_on_with_what_is_left(tmp_path: Path) -> None:
    written(tmp_path / "audit", 60)
    first = read_piece(tmp_path / "audit", ALL, None, most_bytes=1)
    oldest, second, *_ = segments(tmp_path / "audit")
    oldest.unlink()
    found = read_piece(tmp_path / "audit", ALL, first.position, most_bytes=1)
    assert found.found[0].entry.number == int(second.stem.removeprefix("audit-"))
    assert found.broken is None


@pytest.mark.parametrize(
    ("selection", "numbers"),
    [(WantedEntries(who="bob"), [1, 3, 5]), (WantedEntries(app="a1"), [2, 5]), (WantedEntries(what="call3"), [4])],
)
def test_entries_selected_are_told(tmp_path: Path, selection: WantedEntries, numbers: list[int]) -> None:
    written(tmp_path / "audit", 6)
    assert [
        each.entry.number for each in read_piece(tmp_path / "audit", selection, None, most_bytes=9999).found
    ] == numbers

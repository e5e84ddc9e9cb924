"""An audit log that is read by pieces: each entry once, and a break wherever a piece ends."""

from pathlib import Path

import pytest

from hawker.audit.audit_log import AuditLog, segments
from hawker.audit.audit_reader import AuditPiece, WantedEntries, read_piece
from hawker.clock import ManualClock

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

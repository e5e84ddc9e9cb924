import msgspec
import pytest

from hawker.audit.chain import BEGINNING, AuditEntry, broken, line_of, read_line, sealed


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

from pathlib import Path

import msgspec
import pytest

from hawker.audit.audit_log import AuditLog, segments
from hawker.cli.exits import ExitStatus
from hawker.clock import ManualClock
from tests.cli.conftest import Hawker


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAWKER_DATA_DIR", str(tmp_path))
    log = AuditLog(tmp_path / "audit", ManualClock(), 1 << 24)
    log.open()
    log.append(what="exec_machine", who="ci", tokens=("abc",), things={"app_name": "shop", "machine_id": "m1"})
    log.append(
        what="exec_machine", who="ci", tokens=("abc",), things={"app_name": "shop", "machine_id": "m1"}, status=200
    )
    log.append(what="delete_machine", who="root", source="10.0.0.1", things={"app_name": "lab"}, status=202)
    log.close()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), ["1", "2", "3"]),
        (("--app", "shop"), ["1", "2"]),
        (("--machine", "m1", "--who", "abc"), ["1", "2"]),
        (("--who", "root"), ["3"]),
        (("--what", "delete_machine"), ["3"]),
        (("--since", "2099-01-01"), []),
        (("--since", "1970-01-02"), ["1", "2", "3"]),
    ],
)
def test_entries_are_listed_by_what_is_asked(
    hawker: Hawker, place: Path, words: tuple[str, ...], numbers: list[str]
) -> None:
    assert [line.split()[0] for line in hawker("audit", "list", "--local", *words).out.splitlines()[1:]] == numbers


def test_a_time_that_is_none_is_refused(hawker: Hawker, place: Path) -> None:
    done = hawker("audit", "list", "--local", "--since", "yesterday")
    assert done.status == ExitStatus.USAGE and "'yesterday' is neither a length of time" in done.err


def test_an_exported_log_can_be_verified_elsewhere(hawker: Hawker, place: Path, tmp_path: Path) -> None:
    assert "3 entries, 1 to 3: the chain holds" in hawker("audit", "verify", "--local").out
    copy = tmp_path / "copy.jsonl"
    copy.write_text(hawker("audit", "export", "--local").out)
    assert "the chain holds" in hawker("audit", "verify", str(copy)).out
    (judged,) = msgspec.json.decode(hawker("audit", "verify", str(copy), "-o", "json").out)
    assert (judged["entries"], judged["last"], judged["fault"]) == (3, 3, None)
    copy.write_text(copy.read_text().replace("root", "mallory"))
    said = hawker("audit", "verify", str(copy))
    assert said.status == ExitStatus.FAILED and "the chain breaks at line 3, entry 3: it was changed" in said.err


def test_a_log_that_somebody_edited_is_found(hawker: Hawker, place: Path) -> None:
    (segment,) = segments(place / "audit")
    held = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(held[0] + held[2])
    assert "does not follow entry 1" in hawker("audit", "verify", "--local").err


def test_a_line_that_is_no_entry_is_found_wherever_it_was_put(hawker: Hawker, place: Path) -> None:
    (segment,) = segments(place / "audit")
    held = segment.read_bytes().splitlines(keepends=True)
    for at in range(len(held) + 1):
        segment.write_bytes(b"".join([*held[:at], b"{}\n", *held[at:]]))
        assert f"the chain breaks at line {at + 1}: this is no entry" in hawker("audit", "verify", "--local").err
        assert len(hawker("audit", "list", "--local").out.splitlines()) == len(held) + 2

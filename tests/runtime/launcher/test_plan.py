"""Facts about plans, and about what the program that carries them out refuses before it does anything."""

import os
import struct
from pathlib import Path

import pytest

from hawker import guest
from hawker.host.spawn import spawn
from hawker.runtime.launcher.plan import PLAN_BYTES_MAX, PlanWriter, Record


def _plan(*records: tuple[Record, tuple[int | str | bytes, ...]]) -> bytes:
    writer = PlanWriter()
    for kind, fields in records:
        writer.add(kind, *fields)
    return writer.finish()


HARMLESS = _plan((Record.RUN_ON_HOST, ()), *((Record.ARG, (word,)) for word in ("/bin/sh", "-c", "exit 7")))


def _carry_out(tmp_path: Path, plan: bytes) -> tuple[int, str]:
    """How the launcher ended, and its report."""
    (tmp_path / "plan").write_bytes(plan)
    listening, telling = os.pipe2(os.O_CLOEXEC)
    pid = spawn([str(guest.launcher_path()), str(tmp_path / "plan"), "0"], fds=[telling])
    os.close(telling)
    with os.fdopen(listening) as report:
        told = report.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), told


def test_a_plan_is_a_head_and_records_of_numbers_and_texts() -> None:
    plan = _plan((Record.LINK, ("/dev/fd", "x", 1)))
    head, record = plan[:16], plan[16:]
    assert head == b"hawkplan" + struct.pack("<II", 1, len(plan))
    fields = struct.pack("<I", 7) + b"/dev/fd\0" + struct.pack("<I", 1) + b"x\0" + struct.pack("<Q", 1)
    assert record == struct.pack("<II", Record.LINK, len(fields)) + fields


def test_a_text_with_an_end_inside_is_refused_and_a_program_may_hold_anything() -> None:
    with pytest.raises(ValueError, match="NUL"):
        PlanWriter().add(Record.ARG, "a\0b")
    PlanWriter().add(Record.GROUP_FILTER, b"\0\0")


def test_a_plan_that_the_launcher_would_refuse_for_its_size_is_not_written() -> None:
    writer = PlanWriter()
    writer.add(Record.GROUP_FILTER, bytes(PLAN_BYTES_MAX))
    with pytest.raises(ValueError, match="larger"):
        writer.finish()


def test_the_kinds_are_those_of_the_programs_header() -> None:
    header = Path(__file__).parents[3] / "guest/launcher/plan.h"
    listed = header.read_text().partition("enum record_kind {")[2].partition("};")[0]
    names = [line.split("/*")[0].strip().partition(" ")[0].rstrip(",") for line in listed.splitlines()]
    assert [name for name in names if name.isupper() and name != "KINDS"] == [kind.name for kind in Record]


def test_a_program_of_the_host_is_run_and_its_end_passed_on(tmp_path: Path) -> None:
    assert _carry_out(tmp_path, HARMLESS) == (7, "")


def test_a_plan_cut_anywhere_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    for length in range(len(HARMLESS)):
        cut = bytearray(HARMLESS[:length])
        if length >= 16:
            cut[12:16] = struct.pack("<I", length)
        if length == 16 or _whole_records(bytes(cut)):
            continue
        status, report = _carry_out(tmp_path, bytes(cut))
        assert (status, report[:7]) == (1, "failed "), length


def _whole_records(plan: bytes) -> bool:
    """Whether the cut is between two records, so that the plan is a shorter one."""
    at = 16
    while at + 8 <= len(plan):
        at += 8 + struct.unpack_from("<I", plan, at + 4)[0]
    return at == len(plan)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (b"hawkplaN" + HARMLESS[8:], "none"),
        (HARMLESS[:8] + struct.pack("<I", 2) + HARMLESS[12:], "version"),
        (HARMLESS + b"\0", "cut"),
        (_plan() + b"", "no root"),
        (_plan((Record.NAMESPACES, (0,))), "no root"),
    ],
)
def test_a_plan_that_is_none_of_ours_is_refused_in_words(tmp_path: Path, plan: bytes, why: str) -> None:
    status, report = _carry_out(tmp_path, plan)
    assert status == 1
    assert report.startswith("failed 22 read the plan:") and why in report


@pytest.mark.parametrize("kind", [0, len(Record) + 1, 2**32 - 1])
def test_a_record_of_an_unknown_kind_is_refused(tmp_path: Path, kind: int) -> None:
    plan = bytearray(HARMLESS)
    plan[16:20] = struct.pack("<I", kind)
    assert "unknown kind" in _carry_out(tmp_path, bytes(plan))[1]


def test_an_end_inside_a_text_is_refused(tmp_path: Path) -> None:
    assert "ends twice" in _carry_out(tmp_path, HARMLESS.replace(b"exit 7", b"exit\x007"))[1]


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    plan = _plan((Record.RUN_ON_HOST, ()), (Record.ARG, ("/nowhere",)))
    assert _carry_out(tmp_path, plan) == (1, "failed 2 execute /nowhere: No such file or directory\n")

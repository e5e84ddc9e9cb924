"""Copies whose machine is played; real ones are in the drivers' contract suite."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from hawker.errors import Unavailable
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import CopyDirection, ExecSession, ExecSpec, Exit
from hawker.runtime.pilot.file_copies import FileNotCopied, copy_files, held_for_files, waiting_for_files
from hawker.runtime.spec import FileSpec, InstanceLimits, InstanceSpec, ProcessSpec

pytestmark = pytest.mark.anyio

LIMITS = InstanceLimits(cpus=1, cpu_weight=100, memory_mib=64, pids=64)


class Machine:
    """Keeps what it is sent, by path. `full` refuses files; a `dumb` one is lost without a word."""

    def __init__(self) -> None:
        self.sent: dict[str, bytes] = {}
        self.specs: list[ExecSpec] = []
        self.closed = 0
        self.full = self.dumb = False

    async def begin(self, spec: ExecSpec) -> ExecSession:
        self.specs.append(spec)
        return cast(ExecSession, Copy(self, spec.argv[0]))


class Copy:
    def __init__(self, machine: Machine, path: str) -> None:
        self.machine, self.path = machine, path

    async def send(self, data: bytes) -> None:
        self.machine.sent[self.path] = self.machine.sent.get(self.path, b"") + data

    async def send_eof(self) -> None:
        return None

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        if self.machine.full:
            yield 2, f"{self.path}: No space left on device\n".encode()

    async def wait(self) -> Exit:
        if self.machine.dumb:
            raise Unavailable("contact was lost")
        return Exit(exit_code=1 if self.machine.full else 0, exited_at=0.0)

    async def close(self) -> None:
        self.machine.closed += 1


def source(place: Path, size: int = 200_000) -> FileSpec:
    (place / "source").write_bytes(b"x" * size)
    return FileSpec(path="/a/b/file", source=str(place / "source"), mode=0o640)


def spec_of(*processes: ProcessSpec, files: tuple[FileSpec, ...] = ()) -> InstanceSpec:
    return InstanceSpec(
        machine_id=MachineId("1"),
        instance_id=InstanceId("2"),
        hostname="x",
        processes=processes,
        files=files,
        limits=LIMITS,
    )


async def test_a_file_comes_after_its_parents_whole_and_as_root(tmp_path: Path) -> None:
    machine = Machine()
    await copy_files((FileSpec(path="/small", content=b"goes with the spec"), source(tmp_path)), 3, machine.begin)
    assert list(machine.sent) == ["/a", "/a/b", "/a/b/file"] and machine.closed == 3
    assert {(each.user, each.process, each.copy) for each in machine.specs} == {("0", 3, CopyDirection.IN)}
    stream = machine.sent["/a/b/file"]
    assert stream.startswith(b"HKCP\x01\x00\x01\x01") and stream.endswith(b"\x03\x05")
    assert stream.count(b"x" * 64) > 3000 and len(stream) < 201_000


async def test_a_refusal_of_the_machine_is_told(tmp_path: Path) -> None:
    machine = Machine()
    machine.full = True
    with pytest.raises(FileNotCopied, match=r"^/a: No space left on device"):
        await copy_files((source(tmp_path),), 0, machine.begin)
    assert machine.closed == 1


async def test_lost_contact_is_worth_another_try_and_a_lost_source_is_not(tmp_path: Path) -> None:
    machine, file = Machine(), source(tmp_path)
    machine.dumb = True
    with pytest.raises(Unavailable):
        await copy_files((file,), 0, machine.begin)
    machine.dumb = False
    (tmp_path / "source").unlink()
    with pytest.raises(FileNotFoundError):
        await copy_files((file,), 0, machine.begin)
    assert machine.closed == len(machine.specs)


def test_processes_wait_for_files_that_are_theirs(tmp_path: Path) -> None:
    def process(**fields: Any) -> ProcessSpec:
        return ProcessSpec(argv=("x",), env={}, **fields)

    file = source(tmp_path)
    plain = spec_of(process(), process(), files=(FileSpec(path="/small"),))
    assert waiting_for_files(plain) == () and held_for_files(plain) is plain
    of_all = spec_of(process(), process(held=True), files=(file,))
    assert waiting_for_files(of_all) == (0,)
    assert [each.held for each in held_for_files(of_all).processes] == [True, True]
    of_one = spec_of(process(), process(files=(file,)))
    assert waiting_for_files(of_one) == (1,)
    assert [each.held for each in held_for_files(of_one).processes] == [False, True]

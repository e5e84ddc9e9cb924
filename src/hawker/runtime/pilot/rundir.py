"""The driver's directory of one machine on the host, `run/`, and the files in it.

The lock on the journal is the truth about life: the pilot holds it from before its first instruction to its end,
whoever started it, so no daemon is ever fooled by a stale file or a process id used again.
"""

import contextlib
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from hawker.runtime.driver import Exit, InstanceSpec

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RunDir:
    path: Path

    @property
    def socket(self) -> Path:
        return self.path / "pilot.sock"

    @property
    def journal(self) -> Path:
        return self.path / "journal"

    @property
    def outputs(self) -> tuple[Path, Path]:
        return self.path / "output.0", self.path / "output.1"

    @property
    def _spec(self) -> Path:
        return self.path / "instance"

    @property
    def _exit(self) -> Path:
        return self.path / "exit"

    @property
    def _pid(self) -> Path:
        return self.path / "pid"

    def exists(self) -> bool:
        return self.path.is_dir()

    def alive(self) -> bool:
        """Whether a pilot runs here, or is about to."""
        try:
            fd = os.open(self.journal, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def spec(self) -> InstanceSpec | None:
        return _read(self._spec, InstanceSpec)

    def write_spec(self, spec: InstanceSpec) -> None:
        _write(self._spec, spec)

    def exit(self) -> Exit | None:
        """The exit as settled once, with what only the technology knew."""
        return _read(self._exit, Exit)

    def write_exit(self, exit: Exit) -> None:
        _write(self._exit, exit)

    def pid(self) -> int | None:
        """The pilot's process id when it was started; whether it is still that process, only `alive` says."""
        return _read(self._pid, int)

    def write_pid(self, pid: int) -> None:
        _write(self._pid, pid)

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path)


def _write(path: Path, value: object) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(msgspec.json.encode(value))
    fresh.replace(path)


def _read(path: Path, shape: type[_T]) -> _T | None:
    """None too for a file that a crash of the host cut: it is then as if it had not been written."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (FileNotFoundError, msgspec.DecodeError):
        return None

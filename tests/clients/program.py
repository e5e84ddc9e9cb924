"""A client in a process of its own, spoken to over lines of JSON: a call in, an answer or an error out."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.waiting import is_readable

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests/clients"
INSTALLED = ROOT / "build/clients"
_ANSWERS_WITHIN_S = 75.0  # a call that waits takes a minute at most


class Refused(Exception):
    """What the client raised to its caller."""


@dataclass(slots=True)
class Program:
    process: "subprocess.Popen[bytes]"
    _read: bytes = b""

    def ask(self, line: Mapping[str, object]) -> Any:
        """Raises `Refused` with what the client raised."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(line) + b"\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        said = msgspec.json.decode(self._line(), type=dict[str, Any])
        if "error" in said:
            raise Refused(said["error"])
        return said.get("answer")  # JSON has no undefined

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._read:
            assert is_readable(self.process.stdout.fileno(), _ANSWERS_WITHIN_S), (
                f"no answer within {_ANSWERS_WITHIN_S} s"
            )
            chunk = os.read(self.process.stdout.fileno(), 1 << 20)
            assert chunk, f"the client ended with status {self.process.wait(60)}"
            self._read += chunk
        line, _, self._read = self._read.partition(b"\n")
        return line


@contextmanager
def program(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Program]:
    """Ended by the end of its input."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}, cwd=INSTALLED
    )
    try:
        yield Program(process)
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)
        process.stdout.close()


def needs(installed: Path, name: str, by: str = "make test-setup") -> None:
    """Skips a test whose client is not installed; on CI that is a failure. `by` installs it."""
    if installed.exists():
        return
    reason = f"{name} is not installed: `{by}` does it, where its package registry can be reached"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)

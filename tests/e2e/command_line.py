"""The `hawker` command as a person or a script runs it, against one node: with pipes, or on a terminal."""

import os
import pty
import subprocess
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

import anyio.to_thread

from tests.e2e.running_node import HAWKER, RunningNode
from tests.waiting import is_readable

TIMEOUT_S = 240.0


@dataclass(frozen=True, slots=True)
class Done:
    status: int
    out: str
    err: str


class CommandLine:
    """`environment` is what leads the command to its node."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        done = subprocess.run(
            [HAWKER, *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def say(self, *arguments: str) -> str:
        """What a command that succeeds writes to stdout."""
        done = self(*arguments)
        assert done.status == 0, done
        return done.out

    def begin(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """One that goes on; its stdout and stderr are pipes."""
        pipe = subprocess.PIPE
        return subprocess.Popen([HAWKER, *arguments], env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe)

    @contextmanager
    def on_terminal(self, *arguments: str, rows: int = 24, cols: int = 80) -> Iterator["Terminal"]:
        """As in a window of this size."""
        person, own = pty.openpty()
        termios.tcsetwinsize(own, (rows, cols))
        process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", HAWKER, *arguments],
            env=self.environment | {"TERM": "xterm"},
            stdin=own,
            stdout=own,
            stderr=own,
        )
        os.close(own)
        terminal = Terminal(person, process)
        try:
            yield terminal
        finally:
            process.kill()
            process.wait(TIMEOUT_S)
            os.close(person)


async def narrowed(node: RunningNode, *limits: str) -> str:
    """A token of the node that is limited so, as `hawker tokens create` makes it."""
    line = CommandLine(os.environ | {"HAWKER_URL": node.url, "HAWKER_TOKEN": node.token})
    return (await anyio.to_thread.run_sync(line.say, "tokens", "create", *limits)).strip()


class Terminal:
    """The person's side of a window."""

    def __init__(self, fd: int, process: "subprocess.Popen[bytes]") -> None:
        self.seen = ""
        self._fd = fd
        self._process = process

    def resize(self, rows: int, cols: int) -> None:
        termios.tcsetwinsize(self._fd, (rows, cols))

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def shows(self, text: str) -> None:
        """Once it does; what came before is not looked at again."""
        deadline = monotonic() + TIMEOUT_S
        while text not in self.seen:
            assert is_readable(self._fd, max(0.0, deadline - monotonic())), f"no {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self._fd, 65_536).decode(errors="replace")
            except OSError as error:
                raise AssertionError(f"the command ended without {text!r}: {self.seen!r}") from error
        self.seen = self.seen.partition(text)[2]

    def ends(self) -> int:
        """The command's exit status."""
        return self._process.wait(TIMEOUT_S)

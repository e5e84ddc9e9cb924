"""An init system for tests: it holds the listening socket, starts a daemon of any version on it and hears that it is
ready, as systemd does. The socket outlives every daemon, and so do the machines.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from hawker.place import Place
from tests.fixtures.activation import activated
from tests.node_ids import own_node_id
from tests.upgrade.builds import Build
from tests.waiting import is_readable

READY_WITHIN_S = 120.0
ENDS_WITHIN_S = 90.0


class InitSystem:
    """One data directory, one socket, one daemon at a time."""

    def __init__(self, place: Path, listener: socket.socket, notices: socket.socket, address: str) -> None:
        self.data_dir = place / "data"
        self.listener = listener
        self.lives = 0
        self._place = place
        self._notices = notices
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    @property
    def token(self) -> str:
        return (self.data_dir / "token").read_text().strip()

    @property
    def errors(self) -> str:
        return (self._place / f"life-{self.lives}.err").read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, build: Build, *flags: str) -> None:
        """Returns once it says that it is ready."""
        self.lives += 1
        if not self.data_dir.exists():
            self.data_dir.mkdir(mode=0o700)
            Place(self.data_dir).remember(own_node_id())
        command = build.command("up", "--data-dir", str(self.data_dir), *flags)
        environment = build.environment | {"NOTIFY_SOCKET": self._address}
        with (self._place / f"life-{self.lives}.err").open("wb") as errors:
            self._process = subprocess.Popen(
                activated(command, self.listener.fileno()),
                env=environment,
                pass_fds=[self.listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=self._place,
            )
        self.heard("READY=1", READY_WITHIN_S)

    def heard(self, word: str, within_s: float) -> None:
        """Once the daemon has said so."""
        deadline = monotonic() + within_s
        while True:
            ended = self._process is None or self._process.poll() is not None  # it may have said so before
            if is_readable(self._notices.fileno(), 0 if ended else 0.1):
                if word in self._notices.recv(4096).decode():
                    return
            else:
                assert not ended and monotonic() < deadline, self.errors[-3000:]

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        status = self._process.wait(ENDS_WITHIN_S)
        assert status == (0 if number is signal.SIGTERM else -number), self.errors[-3000:]

    def replace(self, build: Build, number: signal.Signals, *flags: str) -> None:
        self.end(number)
        self.start(build, *flags)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(ENDS_WITHIN_S)


@contextmanager
def init_system(place: Path) -> Iterator[InitSystem]:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=2048) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices,
    ):
        address = f"hawker-test-{os.getpid()}-{listener.getsockname()[1]}"
        notices.bind(f"\0{address}")
        found = InitSystem(place, listener, notices, f"@{address}")
        try:
            yield found
        finally:
            found.close()

"""A real node for a test: `hawker up` as a process of its own, on a data directory that outlives its lives.

`withdraw` is the end of every node: one last life that is ephemeral destroys what is left, so that nothing is stray.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import msgspec

from hawker.api.client import Client
from hawker.log import Secret
from tests.stray import host, left
from tests.waiting import wait_for

HAWKER = str(Path(sys.executable).with_name("hawker"))
READY_WITHIN_S = 30.0
ENDS_WITHIN_S = 90.0
_LAST_LOGS = 3000


class RunningNode:
    """One data directory, and the daemon that is on it now, if any. Each life has its own stdout and stderr."""

    def __init__(self, place: Path, *flags: str, before_it: Sequence[str] = ()) -> None:
        self.place = place
        self.data_dir = place / "data"
        self.flags = flags
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("HAWKER_")}
        self._before_it = before_it
        self._before = host()
        self._lives = 0
        self._ephemeral = False
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, *flags: str, failpoint: str | None = None) -> "RunningNode":
        """Begin a life, and do not wait for it. `failpoint` is where it kills itself."""
        self._lives += 1
        self._ephemeral = "--ephemeral" in (*self.flags, *flags)
        command = [
            *self._before_it,
            HAWKER,
            "up",
            "--data-dir",
            str(self.data_dir),
            "--listen",
            "127.0.0.1:0",
            *self.flags,
            *flags,
        ]
        armed = {} if failpoint is None else {"HAWKER_FAILPOINT": failpoint}
        with self._file("out").open("wb") as out, self._file("err").open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=out, stderr=errors, env=self.environment | armed)
        return self

    def start(self, *flags: str) -> "RunningNode":
        """Begin a life, and return once it is ready."""
        self.launch(*flags)
        wait_for(lambda: self.ready or not self.alive, READY_WITHIN_S)
        assert self.ready, f"the node ended with status {self.process.returncode}: {self.errors}"
        return self

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "never launched"
        return self._process

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ready(self) -> bool:
        return self.output.endswith("\n")

    @property
    def output(self) -> str:
        """All that this life wrote to stdout."""
        return self._file("out").read_text()

    @property
    def errors(self) -> str:
        """The end of what this life wrote to stderr."""
        return self._file("err").read_text()[-_LAST_LOGS:]

    @property
    def url(self) -> str:
        return self.output.removeprefix("ready ").strip()

    @property
    def token(self) -> str:
        return (self.data_dir / "token").read_text().strip()

    def client(self) -> Client:
        """Use it as a context manager."""
        return Client(self.url, Secret(self.token))

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        self.process.wait(ENDS_WITHIN_S)

    def ended(self, within_s: float = ENDS_WITHIN_S) -> int:
        """The exit status of a life that ends by itself."""
        return self.process.wait(within_s)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """How many seconds it took to end, with status 0."""
        began = monotonic()
        self.process.send_signal(number)
        assert self.process.wait(ENDS_WITHIN_S) == 0, self.errors
        return monotonic() - began

    @property
    def node_id(self) -> str:
        """Of a life that was ready."""
        lines = (msgspec.json.decode(line) for line in self._file("err").read_bytes().splitlines())
        return next(str(line["node"]) for line in lines if line["message"] == "ready")

    def withdraw(self) -> list[str]:
        """Destroy every machine; what it left on the host all the same."""
        if not (self.data_dir / "hawker.db").exists():
            return []
        if not self._ephemeral:
            if self.alive:
                self.kill()
            self.start("--ephemeral")
        if self.alive:
            self.stop()
        short = self.node_id[:4]
        marks = (self.data_dir, self.node_id, f"hw{short}", f"hawker-{short}", f"hawker_{short}")
        return [str(trace) for trace in left(self._before, *marks)]

    def _file(self, kind: str) -> Path:
        return self.place / f"life-{self._lives}.{kind}"


@contextmanager
def running_node(place: Path, *flags: str, before_it: Sequence[str] = ()) -> Iterator[RunningNode]:
    """A node that is up. At the end it is gone, and so is everything that bears its directory or its id."""
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o777)
    node = RunningNode(place, *flags, before_it=before_it)
    try:
        yield node.start()
    finally:
        strays = node.withdraw()
    assert not strays, f"left on the host: {strays}"
    shutil.rmtree(node.data_dir)

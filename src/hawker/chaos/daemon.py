"""A real node to be hurt: `hawker up` as a process of its own, on a data directory that outlives its lives.

Loopback and a free port only. Calls block, bounded by a deadline; within an event loop they belong in a thread.
`withdraw` is the end of every node: one last life that is ephemeral destroys what is left, so that nothing is stray.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Self

import msgspec

from hawker.api.client import Client
from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.failpoint import REACHED, VARIABLE
from hawker.host.residue import host, left
from hawker.image.block_image import mark_of
from hawker.log import Secret
from hawker.place import Place

HAWKER = str(Path(sys.executable).with_name("hawker"))
LIMITS = "HAWKER_RATE_LIMITS"
READY_WITHIN_S = 90.0
ENDS_WITHIN_S = 90.0
GONE_WITHIN_S = 240.0  # a program with mounts of its own may have a copy of one of them until it ends
_LOOK_EVERY_S = 0.02
_LOOK_AGAIN_S = 0.05
_LAST_LOGS = 3000


class Daemon:
    """One data directory, and the process that is on it now, if any. Each life has its own stdout and stderr beside
    it. Without `driver` the node chooses. `before_it` is a command that runs the node, such as one that drops rights;
    the next life may have another one.
    """

    def __init__(
        self, directory: Path, clock: Clock, *flags: str, driver: str | None = None, before_it: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.place = Place(self.data_dir)
        self.flags = (*flags, *(("--driver", driver) if driver else ()))
        self.driver = driver or ("container" if os.geteuid() == 0 else "process")
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("HAWKER_")}
        self.environment[LIMITS] = "false"  # whoever hurts a node asks it more often than a customer may
        self._clock = clock
        self.before_it = before_it
        self._before = host()
        self._lives = 0
        self._ephemeral = False
        self._node_id = ""
        self._process: subprocess.Popen[bytes] | None = None

    # Life and death.

    def launch(self, *flags: str, failpoint: str | None = None) -> Self:
        """Begin a life, and do not wait for it. `failpoint` is where it kills itself."""
        return self._begin("up", ("--listen", "127.0.0.1:0", "--allow-local-images", *self.flags, *flags), failpoint)

    def start_as(self, command: str, *words: str) -> Self:
        """Begin a life with these words, beside those that say where and how, and return once it is ready."""
        return self._begin(command, (*self.flags, *words)).wait_ready()

    def _begin(self, command: str, words: Sequence[str], failpoint: str | None = None) -> Self:
        self._lives += 1
        self._ephemeral = "--ephemeral" in words
        argv = [*self.before_it, HAWKER, command, "--data-dir", str(self.data_dir), *words]
        armed = {} if failpoint is None else {VARIABLE: failpoint}
        with self._file("out").open("wb") as out, self._file("err").open("wb") as errors:
            self._process = subprocess.Popen(argv, stdout=out, stderr=errors, env=self.environment | armed)
        return self

    def start(self, *flags: str) -> Self:
        """Begin a life, and return once it is ready. Raises `Unavailable` with what it said."""
        return self.launch(*flags).wait_ready()

    def wait_ready(self) -> Self:
        """Raises `Unavailable` when it ended instead, or takes longer than it may."""
        deadline = self._clock.monotonic() + READY_WITHIN_S
        while not self.ready:
            if not self.alive or self._clock.monotonic() > deadline:
                raise Unavailable(f"the node is not ready; status {self.process.poll()}: {self.errors}")
            self._pause()
        return self

    def kill(self) -> None:
        """Ends the daemon with SIGKILL, as a crash would."""
        self.process.kill()
        self.process.wait(ENDS_WITHIN_S)

    def lose(self) -> None:
        """Ends the daemon, and what answers for its host, with SIGKILL: to others the host is gone."""
        self.kill()
        self._signal_presence(signal.SIGKILL)

    @contextmanager
    def frozen(self, *, host: bool) -> Iterator[None]:
        """The daemon is stopped where it is: its connections stay, and it answers nothing. With `host` what answers for
        its host is, too: to others the host is gone."""
        os.kill(self.pid, signal.SIGSTOP)
        if host:
            self._signal_presence(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal_presence(signal.SIGCONT)
            os.kill(self.pid, signal.SIGCONT)

    def _signal_presence(self, number: signal.Signals) -> None:
        with suppress(OSError, ValueError):
            os.kill(int((self.place.presence / "lock").read_text()), number)

    def ended(self, within_s: float = ENDS_WITHIN_S) -> int:
        """The exit status of a life that ends by itself; minus its signal. Raises `Unavailable` when it goes on."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"the node did not end within {within_s:g} s: {self.errors}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """How many seconds it took to end, with status 0. Machines go on. Raises `Unavailable` when it ended badly."""
        began = self._clock.monotonic()
        self.process.send_signal(number)
        status = self.ended()
        if status != 0:
            raise Unavailable(f"the node ended with status {status}: {self.errors}")
        return self._clock.monotonic() - began

    # What is known of it.

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "never launched"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether this life has said so, be it over or not."""
        return self.output.endswith("\n")

    @property
    def output(self) -> str:
        """All that this life wrote to stdout."""
        return self._file("out").read_text()

    @property
    def errors(self) -> str:
        """The end of what this life wrote to stderr."""
        return self._file("err").read_text()[-_LAST_LOGS:]

    def reached(self) -> list[str]:
        """The places that this life has come by, when it was launched to list them."""
        return [str(line["place"]) for line in self.logged() if line.get("message") == REACHED]

    @property
    def url(self) -> str:
        return self.output.removeprefix("ready ").strip()

    @property
    def token(self) -> str:
        return self.place.token.read_text().strip()

    def client(self) -> Client:
        """A client of this life. Use it as a context manager."""
        return Client(self.url, Secret(self.token))

    @property
    def node_id(self) -> str:
        """Known once a life was ready; it logs it a moment after it has said so."""
        deadline = self._clock.monotonic() + READY_WITHIN_S
        while not self._node_id:
            said = (line for line in self.logged() if line.get("message") == "ready")
            self._node_id = next((str(line["node"]) for line in said), "")
            if not self._node_id:
                assert self._clock.monotonic() < deadline, "a node that is ready says who it is"
                self._pause()
        return self._node_id

    @property
    def marks(self) -> tuple[str, ...]:
        """What everything of this node on the host bears one of."""
        short, staged = self.node_id[:4], mark_of(self.place.images / "staging")
        return str(self.data_dir), self.node_id, f"hw{short}", f"hawker-{short}", f"hawker_{short}", staged

    # The end.

    def withdraw(self, gone_within_s: float = GONE_WITHIN_S) -> list[str]:
        """Destroy every machine; what is left on the host all the same, once what is on its way out has gone. A life
        that is ephemeral needs no other after it, unless it was killed."""
        if not self.place.store.exists():
            return []
        if not self._ephemeral or (not self.alive and self.process.returncode != 0):
            if self.alive:
                self.kill()
            self.start("--ephemeral")
        if self.alive:
            self.stop()
        deadline = self._clock.monotonic() + gone_within_s
        while (found := left(self._before, *self.marks)) and self._clock.monotonic() < deadline:
            Event().wait(_LOOK_AGAIN_S)
        return [str(trace) for trace in found]

    def logged(self) -> Iterator[dict[str, object]]:
        """The lines of this life's log; what is no line of it, or not yet, is left out."""
        for line in self._file("err").read_bytes().splitlines():
            with suppress(msgspec.DecodeError):
                yield msgspec.json.decode(line, type=dict[str, object])

    def _pause(self) -> None:
        """Between two looks; over at once when the process ends."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_LOOK_EVERY_S)

    def _file(self, kind: str) -> Path:
        return self.directory / f"life-{self._lives}.{kind}"

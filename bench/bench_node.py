"""A node of its own for a benchmark, on a temporary directory, and the few calls that benchmarks make over HTTP."""

import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from hawker.api.codec import CURSOR_HEADER

_HAWKER = str(Path(sys.executable).with_name("hawker"))
APP = "bench"
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Where this is set and nothing was compiled, every process compiles itself anew; no node of a user does."""


class BenchNode:
    """One keep-alive connection to a node. `boot_s` is how long it took from the command to `ready`."""

    machines = f"/v1/apps/{APP}/machines"

    def __init__(self, url: str, data_dir: Path, pid: int, boot_s: float) -> None:
        self.data_dir, self.pid, self.boot_s = data_dir, pid, boot_s
        self.url = url
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
        self._headers = {"authorization": f"Bearer {(data_dir / 'token').read_text().strip()}"}

    def again(self) -> "BenchNode":
        """Another connection."""
        return BenchNode(self.url, self.data_dir, self.pid, self.boot_s)

    def fetch(self, method: str, path: str, body: object = None) -> tuple[bytes, str | None]:
        """The answer as it came, and the cursor of the next page."""
        data = None if body is None else msgspec.json.encode(body)
        self._connection.request(method, path, data, self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content.decode()}")
        return content, answer.getheader(CURSOR_HEADER)

    def call(self, method: str, path: str, body: object = None) -> dict[str, object]:
        content, _ = self.fetch(method, path, body)
        found: dict[str, object] = msgspec.json.decode(content) if content else {}
        return found

    def make_app(self) -> None:
        self.call("POST", "/v1/apps", {"name": APP, "org_slug": "personal"})

    def create(self, image: str = "hawker/hello", **fields: object) -> str:
        made = self.call("POST", self.machines, {"config": {"image": image}, **fields})
        return str(made["id"])

    def wait(self, machine: str, state: str) -> None:
        self.call("GET", f"{self.machines}/{machine}/wait?state={state}&timeout=60")

    def act(self, machine: str, operation: str) -> None:
        self.call("POST", f"{self.machines}/{machine}/{operation}")

    def destroy(self, machine: str) -> None:
        self.call("DELETE", f"{self.machines}/{machine}?force=true")
        self.wait(machine, "destroyed")


@contextmanager
def bench_node(*flags: str) -> Iterator[BenchNode]:
    """An ephemeral node with an app; its machines are gone at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="hawker-bench-") as directory,
        kept_node(Path(directory), "--ephemeral", *flags) as node,
    ):
        node.make_app()
        yield node


@contextmanager
def kept_node(data_dir: Path, *flags: str, program: tuple[str, ...] = (_HAWKER,)) -> Iterator[BenchNode]:
    """A node on a directory that stays; it is stopped at the end."""
    data_dir.mkdir(exist_ok=True)
    command = [*program, "up", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", *flags]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAWKER_")}
    environment.pop(NO_BYTECODE, None)
    environment["HAWKER_RATE_LIMITS"] = "false"  # what is measured is how fast it can be
    began = time.perf_counter()
    with (
        (data_dir / "log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment) as process,
    ):
        assert process.stdout is not None
        ready = process.stdout.readline().decode().split()
        boot_s = time.perf_counter() - began
        if not ready:
            raise RuntimeError(f"the node did not start: {(data_dir / 'log').read_text()}")
        try:
            yield BenchNode(ready[1], data_dir, process.pid, boot_s)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(90)


_REST_S = 0.15


def rest() -> None:
    """Let the host come to rest, so that each side pays for what only a host at rest makes it wait for."""
    time.sleep(_REST_S)


def timed_ms(work: object, *arguments: object) -> float:
    """How long `work(*arguments)` takes."""
    assert callable(work)
    began = time.perf_counter()
    work(*arguments)
    return (time.perf_counter() - began) * 1000

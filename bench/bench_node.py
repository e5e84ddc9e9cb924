"""A node of its own for a benchmark, on a temporary directory, and the few calls that benchmarks make over HTTP."""

import http.client
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import msgspec

_HAWKER = str(Path(sys.executable).with_name("hawker"))
APP = "bench"


class BenchNode:
    """One keep-alive connection to a node."""

    def __init__(self, url: str, data_dir: Path) -> None:
        self.data_dir = data_dir
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
        self._headers = {"authorization": f"Bearer {(data_dir / 'token').read_text().strip()}"}
        self.call("POST", "/v1/apps", {"name": APP, "org_slug": "personal"})

    def call(self, method: str, path: str, body: object = None) -> dict[str, object]:
        data = None if body is None else msgspec.json.encode(body)
        self._connection.request(method, path, data, self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content.decode()}")
        found: dict[str, object] = msgspec.json.decode(content) if content else {}
        return found

    def create(self, image: str = "hawker/hello", **fields: object) -> str:
        made = self.call("POST", f"/v1/apps/{APP}/machines", {"config": {"image": image}, **fields})
        return str(made["id"])

    def wait(self, machine: str, state: str) -> None:
        self.call("GET", f"/v1/apps/{APP}/machines/{machine}/wait?state={state}&timeout=60")

    def act(self, machine: str, operation: str) -> None:
        self.call("POST", f"/v1/apps/{APP}/machines/{machine}/{operation}")

    def destroy(self, machine: str) -> None:
        self.call("DELETE", f"/v1/apps/{APP}/machines/{machine}?force=true")
        self.wait(machine, "destroyed")


@contextmanager
def bench_node(*flags: str) -> Iterator[BenchNode]:
    """An ephemeral node; its machines are gone at the end."""
    with tempfile.TemporaryDirectory(prefix="hawker-bench-") as directory:
        command = [_HAWKER, "up", "--data-dir", directory, "--listen", "127.0.0.1:0", "--ephemeral", *flags]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HAWKER_")}
        with (
            open(f"{directory}/log", "wb") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment) as process,
        ):
            assert process.stdout is not None
            ready = process.stdout.readline().decode().split()
            if not ready:
                raise RuntimeError(f"the node did not start: {Path(directory, 'log').read_text()}")
            try:
                yield BenchNode(ready[1], Path(directory))
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(90)


def timed_ms(work: object, *arguments: object) -> float:
    """How long `work(*arguments)` takes."""
    assert callable(work)
    began = perf_counter()
    work(*arguments)
    return (perf_counter() - began) * 1000

"""moto's S3 server as a process on loopback, with a bucket."""

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

BUCKET = "histories"
KEYS = {"AWS_ACCESS_KEY_ID": "anybody", "AWS_SECRET_ACCESS_KEY": "anything"}
_ENDS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class S3Server:
    url: str

    def objects(self) -> str:
        """The bucket's listing, as the service has it."""
        with urllib.request.urlopen(f"{self.url}/{BUCKET}?list-type=2") as answer:
            return str(answer.read().decode())

    def put(self, key: str, data: bytes) -> None:
        self._send(f"{BUCKET}/{key}", data)

    def make_bucket(self) -> None:
        self._send(BUCKET, b"")

    def _send(self, path: str, data: bytes) -> None:
        request = urllib.request.Request(f"{self.url}/{path}", data=data, method="PUT")
        urllib.request.urlopen(request).close()


@contextmanager
def s3_server(*, checks_keys: bool = False) -> Iterator[S3Server]:
    """With `checks_keys`, every call after the one that makes the bucket needs a key that nobody has."""
    environ = {**os.environ, **({"INITIAL_NO_AUTH_ACTION_COUNT": "1"} if checks_keys else {})}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as process:
        listening = threading.Thread(target=_hear, args=(process,))
        try:
            server = S3Server(_address(process))
            listening.start()
            server.make_bucket()
            yield server
        finally:
            process.terminate()
            process.wait(_ENDS_WITHIN_S)
            if listening.ident is not None:
                listening.join()


def _hear(process: subprocess.Popen[str]) -> None:
    """It writes a line for each call, and waits once nobody has read some hundreds of them."""
    assert process.stderr is not None
    for _ in process.stderr:
        pass


def _address(process: subprocess.Popen[str]) -> str:
    """It says where it listens, on stderr."""
    assert process.stderr is not None
    for line in process.stderr:
        if "Running on http" in line:
            return line.split()[-1]
    raise AssertionError(f"the S3 server ended with {process.wait()}")

"""A process in a mount namespace without the hybrid hierarchy, in which crun and podman run as they are.

crun 1.8 refuses hosts that mount cgroup v1 and v2 together. Peers are timed where that is hidden from them, by a
process that is there already, so that hiding it is no part of their time.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter

import msgspec

_UNIFIED = "/sys/fs/cgroup/unified"
_SERVE = "--serve"


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    ms: float
    status: int
    output: str


class QuietHost:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def run(self, argv: Sequence[str]) -> Timed:
        """Run a command to its end. Raises `RuntimeError` when it fails."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(list(argv)) + b"\n")
        self._process.stdin.flush()
        timed = msgspec.json.decode(self._process.stdout.readline(), type=Timed)
        if timed.status != 0:
            raise RuntimeError(f"{' '.join(argv)}: {timed.output}")
        return timed


@contextmanager
def quiet_host() -> Iterator[QuietHost]:
    hide = f'umount {_UNIFIED} 2>/dev/null; exec "$@"' if Path(_UNIFIED).is_dir() else 'exec "$@"'
    command = ["unshare", "-m", "sh", "-c", hide, "sh", sys.executable, __file__, _SERVE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield QuietHost(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


def _serve() -> None:
    for line in sys.stdin.buffer:
        argv = msgspec.json.decode(line, type=list[str])
        began = perf_counter()
        with TemporaryFile() as output:  # no pipe: what runs on in the background would keep it open
            status = subprocess.call(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            ms = (perf_counter() - began) * 1000
            output.seek(0)
            timed = Timed(ms=ms, status=status, output=output.read().decode())
        sys.stdout.buffer.write(msgspec.json.encode(timed) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__" and sys.argv[1:] == [_SERVE]:
    _serve()

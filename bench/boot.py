"""How long a node is away after kill -9: from the kill to `ready` of the next daemon. At rest and with every core busy;
with a template (`hawker up --template`) and without, where the time includes the start of `hawker up` by somebody who
notices at once. And what each takes of memory. Prints the table of docs/benchmarks.md.

    python bench/boot.py [rounds]
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from bench_node import NO_BYTECODE
from figures import Samples, table

_AT_ONCE = 3
_BUSY = "while True: pass"
_HAWKER = str(Path(sys.executable).with_name("hawker"))
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}


@contextmanager
def _busy() -> Iterator[None]:
    """Every core has a process that never waits."""
    burners = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _pss_mib(pids: list[int]) -> float:
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(text.split("\nPss:")[1].split()[0]) for text in rollups) / 1024


class Subject:
    """A node that is killed again and again, on a directory of its own."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self._command = [_HAWKER, "up", "--data-dir", str(directory), "--listen", "127.0.0.1:0", *flags]
        self._log = (directory.parent / f"{directory.name}.log").open("wb")
        self._template = "--template" in flags
        self._deaths = 0
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=self._log, env=_ENVIRONMENT)
        self._until_ready()

    def _until_ready(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith(b"ready "):
            raise RuntimeError(f"the node did not start: see {self._log.name}")

    def back_ms(self) -> float:
        """Kill the daemon, and wait for `ready` of the next."""
        if self._template and self._deaths == _AT_ONCE:  # a template lets a daemon wait that dies again and again
            self._process.terminate()
            self._process.wait(90)
            self._deaths = 0
            self._start()
        self._deaths += 1
        began = perf_counter()
        if self._template:
            os.kill(_children(self._process.pid)[0], signal.SIGKILL)
            self._until_ready()
        else:
            self._process.kill()
            self._process.wait()
            self._start()
        return (perf_counter() - began) * 1000

    def pss_mib(self) -> float:
        pid = self._process.pid
        return _pss_mib([pid, *(_children(pid) if self._template else [])])

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(90)
        self._log.close()


def _rounds(subjects: dict[str, Subject], rounds: int) -> dict[str, list[float]]:
    """Interleaved; the first round warms up."""
    found: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds + 1):
        for name, subject in subjects.items():
            found[name].append(subject.back_ms())
    return {name: ms[1:] for name, ms in found.items()}


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hawker-bench-") as directory:
        root = Path(directory)
        subjects = {"with a template": Subject(root / "a", "--template"), "without": Subject(root / "b")}
        try:
            memory = {name: subject.pss_mib() for name, subject in subjects.items()}
            idle = _rounds(subjects, rounds)
            with _busy():
                busy = _rounds(subjects, rounds)
            after = {name: subject.pss_mib() for name, subject in subjects.items()}
        finally:
            for subject in subjects.values():
                subject.close()
    rows = [Samples(f"kill -9 to `ready`, {name}, idle", ms) for name, ms in idle.items()]
    rows += [Samples(f"the same, every core busy, {name}", ms) for name, ms in busy.items()]
    print(table(rows, rows[1]))
    for name in subjects:
        print(f"{name}: {memory[name]:.0f} MiB (PSS) at first, {after[name]:.0f} MiB after the deaths")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)

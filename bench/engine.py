"""Durable steps per second and the latency of a five-step run, at 1, 8 and 64 runs at once, on disk and in memory,
beside DBOS on SQLite and superfly/fsm. Each contender does the same: a run with a small input, five steps that do
nothing and record a small result, on a resource of each caller's own; every caller waits for its run's end.

    python bench/engine.py [--rounds N] [--seconds S] [DIRECTORY ...]

Without a directory: the disk that has the temporary files, and /dev/shm. Each measurement is a process of its own on
an empty directory; contenders take turns within each round, so that noise hits all alike. What each promises per step
is said where it is driven: `engine_hawker.py`, `peers/dbos_sqlite.py`, `peers/superfly_fsm/main.go`. `make bench-setup`
builds the peers; one that is not there is left out, and said so.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from engine_hawker import STEPS, Measured

AT_ONCE = (1, 8, 64)
_HERE = Path(__file__).parent
_BUILT = _HERE.parent / "build" / "bench"
_OURS = "hawker"


@dataclass(frozen=True, slots=True)
class Contender:
    """A program that is run as `COMMAND DIRECTORY AT_ONCE SECONDS` and prints a `Measured`."""

    name: str
    command: tuple[str, ...]

    @property
    def there(self) -> bool:
        return Path(self.command[0]).exists()


CONTENDERS = (
    Contender(_OURS, (sys.executable, str(_HERE / "engine_hawker.py"))),
    Contender("superfly/fsm", (str(_BUILT / "superfly_fsm"),)),
    Contender("DBOS on SQLite", (str(_BUILT / "dbos" / "bin" / "python"), str(_HERE / "peers" / "dbos_sqlite.py"))),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """What was found of one contender in one place at one load: each round's rate, every run's latency."""

    steps_per_s: list[float] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)

    def add(self, found: Measured) -> None:
        self.steps_per_s.append(len(found.latency_ms) * len(STEPS) / found.seconds)
        self.latency_ms.extend(found.latency_ms)

    @property
    def rate(self) -> float:
        return statistics.median(self.steps_per_s)

    def percentile_ms(self, part: float) -> float:
        ordered = sorted(self.latency_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


@contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hawker-bench-", dir=directory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def fsync_us(directory: Path) -> float:
    """The median of appending 4 KiB and syncing it."""
    taken = []
    with scratch(directory) as folder, (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


def measure(contender: Contender, directory: Path, at_once: int, seconds: float) -> Measured:
    with scratch(directory) as folder:
        command = [*contender.command, str(folder), str(at_once), str(seconds)]
        done = subprocess.run(command, capture_output=True, timeout=120 + 10 * seconds, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{contender.name}: {done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Measured)


def compete(contenders: list[Contender], directory: Path, rounds: int, seconds: float) -> dict[tuple[str, int], Cell]:
    cells = {(contender.name, at_once): Cell() for contender in contenders for at_once in AT_ONCE}
    for _ in range(rounds):
        for at_once in AT_ONCE:
            for contender in contenders:
                cells[contender.name, at_once].add(measure(contender, directory, at_once, seconds))
    return cells


def table(contenders: list[Contender], cells: dict[tuple[str, int], Cell]) -> str:
    lines = ["| engine | at once | steps/s | p50 ms a run | p99 ms | hawker is |", "|---|---:|---:|---:|---:|---:|"]
    for at_once in AT_ONCE:
        ours = cells[_OURS, at_once].rate
        for contender in contenders:
            cell = cells[contender.name, at_once]
            times = "" if contender.name == _OURS else f"{ours / cell.rate:.1f}x as fast"
            p50_ms, p99_ms = cell.percentile_ms(0.50), cell.percentile_ms(0.99)
            lines.append(f"| {contender.name} | {at_once} | {cell.rate:,.0f} | {p50_ms:.1f} | {p99_ms:.1f} | {times} |")
    return "\n".join(lines)


def main(directories: list[Path], rounds: int, seconds: float) -> None:
    for contender in CONTENDERS:
        if not contender.there:
            print(f"left out: {contender.name} is not built here; see what `make bench-setup` says")
    contenders = [contender for contender in CONTENDERS if contender.there]
    for directory in directories:
        print(f"\n{directory}: an fsync takes {fsync_us(directory):.0f} us; {rounds} rounds of {seconds:g} s\n")
        print(table(contenders, compete(contenders, directory, rounds, seconds)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directories", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    main(given.directories or [Path(tempfile.gettempdir()), Path("/dev/shm")], given.rounds, given.seconds)

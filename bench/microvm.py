"""Where the time of a microVM's start and resume goes, and what one costs beside its guest's memory; prints tables.

    python bench/microvm.py [rounds] [driver]

The node is the real daemon with some of its functions timed (`traced_node.py`). What happens inside the guest is told
by the guest's own clock, from the pilot's journal: the kernel's clock begins when the kernel does. The part before that
is what is left of the launch: the VMM loads its firmware and the kernel. Each row is a mean over the middle half of the
rounds, ordered by their whole time.
"""

import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

import msgspec
from bench_node import BenchNode, kept_node
from traced_node import Span

from hawker.runtime.pilot.exit import BootStages, read_journal

_WARM_UP = 1
_IDLE_VMS, _IDLE_MIB, _SETTLE_S = 3, 256, 5.0
_COLD = {
    "call": "API and flow: everything before and after the steps below",
    "mount": "root disk: a fresh layer",
    "network": "network: there already",
    "plan": "kernel, initramfs and plan: looked up, linked, written",
    "jail": "jail: keeper, crun, the VMM's program",
    "firmware": "VMM and firmware, until the kernel's first moment",
    "kernel": "kernel, until the pilot's first moment",
    "modules": "pilot: modules loaded, devices there (the kernel's work)",
    "spec": "pilot: streams opened, the run spec read",
    "link": "pilot: network configured",
    "root": "pilot: image and layer mounted",
    "workload": "pilot: the workload executed",
    "ready": "ready, until the node has heard of it and of its process",
}
_RESUME = {
    "call": "API and flow",
    "jail": "jail: keeper, crun, the VMM's program",
    "load": "memory read back",
    "clock": "let go on, the clock set",
    "rest": "the rest: the snapshot checked and removed",
}


@dataclass(frozen=True, slots=True)
class Round:
    """One operation as the client saw it, by the monotonic clock; `stages` only of a start."""

    began: float
    ended: float
    stages: BootStages | None = None

    @property
    def whole(self) -> float:
        return self.ended - self.began


@contextmanager
def guest_node(directory: Path, driver: str, spans: Path) -> Iterator[BenchNode]:
    """A node whose kernel is imported first: that is a download."""
    hawker = str(Path(sys.executable).with_name("hawker"))
    subprocess.run([hawker, "kernel", "import", "--data-dir", str(directory)], check=True)
    program = (sys.executable, str(Path(__file__).with_name("traced_node.py")), str(spans))
    with kept_node(directory, "--driver", driver, "--ephemeral", program=program) as node:
        node.make_app()
        yield node


def starts(node: BenchNode, machine: str, rounds: int) -> list[Round]:
    journal = node.data_dir / "machines" / machine / "run" / "journal"
    found = []
    for _ in range(rounds):
        node.act(machine, "stop")
        node.wait(machine, "stopped")
        began, ended = _timed(node, machine, "start", "started")
        found.append(Round(began, ended, read_journal(journal).stages))
    return found


def suspensions(node: BenchNode, machine: str, rounds: int) -> tuple[list[Round], list[Round], list[int]]:
    """Suspends, resumes, and the bytes that each suspension took of the disk."""
    saved = node.data_dir / "machines" / machine / "run" / "vmm"
    suspends, resumes, sizes = [], [], []
    for _ in range(rounds):
        suspends.append(Round(*_timed(node, machine, "suspend", "suspended")))
        sizes.append(sum(each.stat().st_blocks * 512 for each in saved.rglob("*") if each.is_file()))
        resumes.append(Round(*_timed(node, machine, "start", "started")))
    return suspends, resumes, sizes


def _timed(node: BenchNode, machine: str, operation: str, state: str) -> tuple[float, float]:
    began = perf_counter()
    node.act(machine, operation)
    node.wait(machine, state)
    return began, perf_counter()


def cold_parts(each: Round, spans: list[Span]) -> Counter[str]:
    """Seconds by part."""
    assert each.stages is not None, "a guest that started has told its stages"
    sums, stages = _sums(each, spans), each.stages
    parts = Counter({name: sums[name] for name in ("mount", "network", "plan", "jail")})
    parts["kernel"] = stages.pilot_s
    parts["modules"] = stages.devices_s - stages.pilot_s
    parts["spec"] = stages.spec_s - stages.devices_s
    parts["link"] = stages.network_s - stages.spec_s
    parts["root"] = stages.root_s - stages.network_s
    parts["workload"] = stages.executed_s - stages.root_s
    parts["firmware"] = sums["begin"] - sums["plan"] - sums["jail"] - sums["inspect"] - stages.executed_s
    parts["ready"] = sums["inspect"]
    parts["call"] = each.whole - sum(parts.values())
    return parts


def resume_parts(each: Round, spans: list[Span]) -> Counter[str]:
    sums = _sums(each, spans)
    parts = Counter({"jail": sums["jail"], "load": sums["boot"], "clock": sums["go on"]})
    parts["rest"] = sums["resume"] - sum(parts.values())
    parts["call"] = each.whole - sums["resume"]
    return parts


def _sums(each: Round, spans: list[Span]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for span in spans:
        if each.began <= span.began and span.ended <= each.ended:
            sums[span.name] += span.ended - span.began
    return sums


def table(title: str, names: dict[str, str], rounds: list[Counter[str]]) -> str:
    ordered = sorted(rounds, key=lambda each: each.total())
    middle = ordered[len(ordered) // 4 : -(len(ordered) // 4) or None]
    lines = [f"| {title} | ms |", "|---|---:|"]
    for name, what in names.items():
        lines.append(f"| {what} | {1000 * statistics.mean(each[name] for each in middle):.1f} |")
    lines.append(f"| **the whole** | {1000 * statistics.mean(each.total() for each in middle):.1f} |")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one idle microVM on the host, in KiB: what of the guest's memory was ever touched, and what the VMM and its
    keeper have beside it. Pages that processes share are counted in parts (PSS)."""

    guest: int
    vmm: int
    keeper: int


def costs(node: BenchNode) -> list[Cost]:
    guest = {"guest": {"memory_mb": _IDLE_MIB, "cpus": 1, "cpu_kind": "shared"}}
    for _ in range(_IDLE_VMS):
        made = node.call("POST", node.machines, {"config": {"image": "hawker/hello", **guest}})
        node.wait(str(made["id"]), "started")
    sleep(_SETTLE_S)
    pids = {journal.parent: _holders(journal) for journal in node.data_dir.glob("machines/*/run/journal")}
    return [_cost(found) for found in pids.values() if len(found) == 2]


def _holders(journal: Path) -> list[int]:
    """The processes that have it open: the VMM and its keeper."""
    inode = journal.stat().st_ino
    found = set()
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if fd.stat().st_ino == inode:
                found.add(int(fd.parts[2]))
        except OSError:
            continue
    return sorted(found)


def _cost(pids: list[int]) -> Cost:
    keeper = next(pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == "keeper")
    vmm = next(pid for pid in pids if pid != keeper)
    guest, whole, size = 0, 0, 0
    for line in Path(f"/proc/{vmm}/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Size":
            size = int(value.split()[0])
        elif name == "Pss":
            whole += int(value.split()[0])
            guest += int(value.split()[0]) if size == _IDLE_MIB << 10 else 0
    tables = _status(vmm, "VmPTE")
    return Cost(guest=guest, vmm=whole - guest + tables, keeper=_rollup(keeper) + _status(keeper, "VmPTE"))


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _rollup(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main(rounds: int, driver: str) -> None:
    with tempfile.TemporaryDirectory(prefix="hawker-bench-") as directory:
        spans_file = Path(directory, "spans")
        with guest_node(Path(directory), driver, spans_file) as node:
            machine = node.create()
            node.wait(machine, "started")
            cold = starts(node, machine, rounds + _WARM_UP)[_WARM_UP:]
            suspends, resumes, sizes = suspensions(node, machine, rounds)
            node.destroy(machine)
            idle = costs(node)
        spans = [msgspec.json.decode(line, type=Span) for line in spans_file.read_bytes().splitlines()]
    print(table(f"A cold start with {driver}", _COLD, [cold_parts(each, spans) for each in cold]))
    print()
    print(table("A resume", _RESUME, [resume_parts(each, spans) for each in resumes]))
    own = [1000 * each.stages.own_s for each in cold if each.stages is not None]
    whole = {"start": cold, "suspend": suspends, "resume": resumes}
    print()
    for name, found in whole.items():
        times = [1000 * each.whole for each in found]
        print(f"{name}: p50 {statistics.median(times):.0f} ms, longest {max(times):.0f} ms, {len(times)} samples")
    print(f"the pilot's own share: p50 {statistics.median(own):.1f} ms, longest {max(own):.1f} ms")
    print(f"a snapshot: {statistics.median(sizes) / (1 << 20):.0f} MiB of the disk")
    for part in ("guest", "vmm", "keeper"):
        mean = statistics.mean(getattr(cost, part) for cost in idle) / 1024
        print(f"an idle microVM of {_IDLE_MIB} MiB, {part}: {mean:.1f} MiB (of {len(idle)})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, sys.argv[2] if len(sys.argv) > 2 else "qemu")

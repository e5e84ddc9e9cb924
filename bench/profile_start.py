"""Where each millisecond of a start and of a create goes, from the API call to `started`; prints the table of
docs/benchmarks.md.

    python bench/profile_start.py [rounds]

The node is the real daemon with some of its functions timed (`traced_node.py`). The parts follow each other: what is
between two of them, such as a switch of threads or a step's own few lines, is in "the rest". Each row is a mean over
the middle half of the rounds, ordered by their whole time, so that the rows add up and noise stays out.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter

import msgspec
from bench_node import BenchNode, kept_node
from traced_node import Span

_WARM_UP = 5
_PARTS = {
    "call": "API: the call to the operation (HTTP, token, route, body; for a create also the image's digest)",
    "admission": "admission: the checks and the record, in the transaction",
    "commit": "commit: to disk, with fsync",
    "mount": "mount: a fresh overlay over the image",
    "network": "network: namespace, addresses, routes",
    "clear": "clear away what the last instance left",
    "lay out": "write the bundle and the spec",
    "launch": "launcher: from its start to the pilot's",
    "pilot": "pilot: the spec read, the workload executed",
    "inspect": "ask for the process id and the time",
    "record": "record each step's end (not awaited by a disk)",
    "answer": "wait: the last record to the answer at the client",
    "rest": "the rest",
}


class Round(msgspec.Struct, frozen=True):
    """One operation as the client saw it."""

    began: float
    ended: float

    @property
    def whole(self) -> float:
        return self.ended - self.began


def parts_of(each: Round, spans: list[Span]) -> Counter[str]:
    """Seconds by part."""
    mine = [span for span in spans if each.began <= span.began and span.ended <= each.ended]
    sums: Counter[str] = Counter()
    for span in mine:
        sums[span.name] += span.ended - span.began
    operation = next(span for span in mine if span.name == "operation")
    admission = sum(
        span.ended - span.began
        for span in mine
        if span.name == "transaction" and operation.began <= span.began <= operation.ended
    )
    timed = ("mount", "network", "clear", "launch", "pilot", "inspect", "record")
    parts = Counter({name: sums[name] for name in timed})
    parts["call"] = operation.began - each.began
    parts["admission"] = admission
    parts["commit"] = operation.ended - operation.began - admission
    parts["lay out"] = sums["prepare"] - sums["clear"]
    parts["answer"] = each.ended - max(span.ended for span in mine if span.name == "record")
    parts["rest"] = each.whole - sum(parts.values())
    return parts


def middle(rounds: list[Round]) -> list[Round]:
    ordered = sorted(rounds, key=lambda each: each.whole)
    return ordered[len(ordered) // 4 : -(len(ordered) // 4) or None]


def starts(node: BenchNode, rounds: int) -> list[Round]:
    machine = node.create()
    node.wait(machine, "started")
    found = []
    for _ in range(rounds):
        node.act(machine, "stop")
        node.wait(machine, "stopped")
        began = perf_counter()
        node.act(machine, "start")
        node.wait(machine, "started")
        found.append(Round(began, perf_counter()))
    node.destroy(machine)
    return found


def creates(node: BenchNode, rounds: int) -> list[Round]:
    found = []
    for _ in range(rounds):
        began = perf_counter()
        machine = node.create()
        node.wait(machine, "started")
        found.append(Round(began, perf_counter()))
        node.destroy(machine)
    return found


def table(columns: dict[str, list[Round]], spans: list[Span]) -> str:
    means: dict[str, Counter[str]] = {}
    for title, rounds in columns.items():
        chosen = middle(rounds)
        total = sum((parts_of(each, spans) for each in chosen), Counter())
        means[title] = Counter({name: 1000 * seconds / len(chosen) for name, seconds in total.items()})
    lines = ["| Part | " + " | ".join(f"{title}, ms" for title in columns) + " |", "|---|" + "---:|" * len(columns)]
    for name, what in _PARTS.items():
        lines.append(f"| {what} | " + " | ".join(f"{means[title][name]:.2f}" for title in columns) + " |")
    lines.append("| **the whole** | " + " | ".join(f"{means[title].total():.2f}" for title in columns) + " |")
    return "\n".join(lines)


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hawker-bench-") as directory:
        spans_file = Path(directory, "spans")
        program = (sys.executable, str(Path(__file__).with_name("traced_node.py")), str(spans_file))
        with kept_node(Path(directory), "--driver", "container", "--ephemeral", program=program) as node:
            node.make_app()
            columns = {
                "start": starts(node, rounds + _WARM_UP)[_WARM_UP:],
                "create": creates(node, rounds + _WARM_UP)[_WARM_UP:],
            }
        spans = [msgspec.json.decode(line, type=Span) for line in spans_file.read_bytes().splitlines()]
    print(table(columns, spans))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)

"""Logs of an app whose machines write fast, with one follower: what is lost, how late a line comes, what the daemon
takes of memory and of a processor. With less than a line a second: how soon a follower hears of one after a rest.

    python bench/logs.py [machines] [lines a second of each] [seconds]
"""

import statistics
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from bench_node import APP, BenchNode, bench_node

_WRITER = """
import sys, time
rate, lines = {rate}, {lines}
begin, written = time.monotonic(), 0
while written < lines:
    due = min(lines, int((time.monotonic() - begin) * rate))
    sys.stdout.write("".join(f"{{number}} a line of a usual length, as a web server writes for one request\\n"
                             for number in range(written, due)))
    sys.stdout.flush()
    written = due
    time.sleep(0.1)
time.sleep(3600)
"""
_QUIET_S = 30.0


class Follower:
    """Counts each machine's lines, and which come out of their order."""

    def __init__(self, node: BenchNode) -> None:
        self._node = node
        self._place = ""
        self.next: Counter[str] = Counter()
        self.lost, self.twice, self.lines = 0, 0, 0
        self.late_ms: list[float] = []

    def page(self) -> None:
        query = f"?wait_s=10&after={quote(self._place)}" if self._place else "?wait_s=1"
        page = self._node.call("GET", f"/hawker/v1/apps/{APP}/logs/page{query}")
        now = time.time()
        self._place = str(page["next"])
        lines = page["lines"]
        assert isinstance(lines, list)
        for line in lines:
            if line["provider"] == "app":
                self._count(line["machine"], int(line["text"].split(" ", 1)[0]))
            elif "lost" in line["text"]:
                print(line["text"])
        if lines:
            self.late_ms.append((now - datetime.fromisoformat(lines[-1]["at"]).timestamp()) * 1000)

    def _count(self, machine: str, number: int) -> None:
        expected = self.next[machine]
        self.lost += max(0, number - expected)
        self.twice += number < expected
        self.next[machine] = max(expected, number + 1)
        self.lines += 1


def _rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main(machines: int, rate: float, seconds: int) -> bool:
    """Whether nothing was lost and nothing came twice."""
    each = int(rate * seconds)
    argv = [sys.executable, "-c", _WRITER.format(rate=rate, lines=each)]
    wanted, memory = machines * each, list[float]()
    with bench_node("--driver", "process", "--memory-mib", "65536", "--shared-cpu-ratio", "64") as node:
        for _ in range(machines):
            node.create(config={"image": "hawker/hello", "init": {"exec": argv}})
        follower, cpu, begin = Follower(node), _cpu_s(node.pid), time.monotonic()
        until = begin + seconds + _QUIET_S
        while follower.lines < wanted and time.monotonic() < until:
            follower.page()
            memory.append(_rss_mib(node.pid))
        took = time.monotonic() - begin
        used = (_cpu_s(node.pid) - cpu) / took
        kept = sum(each.stat().st_size for each in (node.data_dir / "logs").rglob("*.log"))
    third = max(1, len(memory) // 3)
    late = statistics.quantiles(follower.late_ms, n=100)
    print(f"{follower.lines} of {wanted} lines in {took:.0f} s; lost {follower.lost}, twice {follower.twice}")
    print(f"late: p50 {late[49]:.0f} ms, p99 {late[98]:.0f} ms")
    print(f"daemon: {used:.0%} of a processor; RSS {max(memory[:third]):.0f} MiB at most in the first third, ", end="")
    print(f"{max(memory[-third:]):.0f} MiB in the last; kept {kept / (1 << 20):.1f} MiB on disk")
    return follower.lines == wanted and not follower.lost and not follower.twice


if __name__ == "__main__":
    machines, rate, seconds = (sys.argv[1:] + ["20", "1000", "60"][len(sys.argv) - 1 :])[:3]
    sys.exit(0 if main(int(machines), float(rate), int(seconds)) else 1)

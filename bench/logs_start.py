"""How long a machine takes to start while others write: their lines go to the log, or the same bytes to /dev/null, in
turns of ten seconds, so that what the log costs is seen and not what writing them costs. The follower is a process of
its own: in a thread it would hold up the very client whose starts are timed.

    python bench/logs_start.py [machines] [lines a second of each] [seconds]
"""

import multiprocessing
import sys
import time
from pathlib import Path

from bench_node import BenchNode, bench_node, rest, timed_ms
from figures import Samples, table
from logs import Follower

_TURN_S = 10
_SETTLE_S = 2.0
_WRITER = """
import sys, time
rate, written, begin = {rate}, 0, time.monotonic()
nowhere = open("/dev/null", "w")
while True:
    due = int((time.monotonic() - begin) * rate)
    to = sys.stdout if int(time.time()) // {turn} % 2 else nowhere
    to.write("".join(f"{{number}} a line of a usual length, as a web server writes for one request\\n"
                     for number in range(written, due)))
    to.flush()
    written = due
    time.sleep(0.1)
"""


def main(machines: int, rate: int, seconds: int) -> None:
    argv = [sys.executable, "-c", _WRITER.format(rate=rate, turn=_TURN_S)]
    quiet, logged = Samples("lines go nowhere", []), Samples("lines go to the log, with a follower", [])
    with bench_node("--driver", "process", "--memory-mib", "65536", "--shared-cpu-ratio", "64") as node:
        for _ in range(machines):
            node.create(config={"image": "hawker/hello", "init": {"exec": argv}})
        started = node.create(config={"image": "hawker/hello", "init": {"exec": ["/bin/sleep", "1000"]}})
        node.wait(started, "started")
        reader = multiprocessing.get_context("spawn").Process(
            target=_follow, args=(node.url, node.data_dir), daemon=True
        )
        reader.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            now = time.time()
            if now % _TURN_S < _SETTLE_S:
                time.sleep(_SETTLE_S - now % _TURN_S)
            _one(node, started, logged if int(time.time()) // _TURN_S % 2 else quiet)
        reader.terminate()
        reader.join()
    print(table([quiet, logged], quiet))


def _one(node: BenchNode, machine: str, samples: Samples) -> None:
    node.act(machine, "stop")
    node.wait(machine, "stopped")
    rest()
    samples.ms.append(timed_ms(_start, node, machine))


def _start(node: BenchNode, machine: str) -> None:
    node.act(machine, "start")
    node.wait(machine, "started")


def _follow(url: str, data_dir: Path) -> None:
    follower = Follower(BenchNode(url, data_dir, 0, 0.0))
    while True:
        follower.page()


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*(given + [20, 1000, 120][len(given) :]))

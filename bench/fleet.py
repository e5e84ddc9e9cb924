"""Orders filled per second, and how long one takes, through the real HTTP path: clients, brokers and workers are
processes of their own on this machine, workers with the fake driver and a store on disk.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import perf_counter, process_time

import aiohttp
import anyio
import msgspec
from figures import Samples

_NODE = str(Path(__file__).with_name("fleet_node.py"))
_APP = "bench"
_WARM_UP_S = 2.0
_TICKS_PER_S = 100


@contextmanager
def processes(commands: Sequence[Sequence[str]]) -> Iterator[list[tuple[str, int]]]:
    """The URLs of processes of `fleet_node.py`, which begin all at once, and their ids."""
    children: list[subprocess.Popen[str]] = []
    try:
        for command in commands:
            children.append(subprocess.Popen([sys.executable, _NODE, *command], stdout=subprocess.PIPE, text=True))
        yield [(_url(child), child.pid) for child in children]
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()


def _url(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    url = child.stdout.readline().strip()
    if not url:
        raise SystemExit(f"process {child.pid} did not start")
    return url


class Load:
    """`clients` that each order a machine, wait for the answer, and order the next."""

    def __init__(self, urls: Sequence[str], clients: int, order: dict[str, object], rate: float) -> None:
        self._urls, self._clients, self._rate = urls, clients, rate
        self._body = msgspec.json.encode(order)
        self._numbers = count()
        self.ms: list[float] = []
        self.refused: dict[str, int] = {}

    async def run(self, seconds: float) -> float:
        """The seconds it took."""
        self.ms, self.refused = [], {}
        began = perf_counter()
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
            anyio.create_task_group() as tasks,
        ):
            for number in range(self._clients):
                tasks.start_soon(self._client, http, self._urls[number % len(self._urls)], began, seconds, number)
        return perf_counter() - began

    async def _client(self, http: aiohttp.ClientSession, url: str, began: float, seconds: float, number: int) -> None:
        """At a fixed rate, if there is one, whatever the answers take: what waits for its turn counts as waiting."""
        gap_s = self._clients / self._rate if self._rate else 0.0
        due = began + gap_s * number / self._clients
        while perf_counter() < began + seconds:
            if gap_s:
                await anyio.sleep(max(0.0, due - perf_counter()))
            start = due if gap_s else perf_counter()
            due += gap_s
            async with http.post(f"{url}/v1/apps/{_APP}/machines", data=self._body, headers=_JSON) as answer:
                text = await answer.read()
                if answer.status == 200:
                    self.ms.append((perf_counter() - start) * 1000)
                else:
                    self.refused[text.decode()[:120]] = self.refused.get(text.decode()[:120], 0) + 1


_JSON = {"content-type": "application/json", "authorization": "Bearer bench"}


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


async def measure(options: argparse.Namespace, workers: list[tuple[str, int]], brokers: list[tuple[str, int]]) -> None:
    async with aiohttp.ClientSession() as http:
        body = msgspec.json.encode({"name": _APP, "org_slug": "personal"})
        async with http.post(f"{workers[0][0]}/v1/apps", data=body, headers=_JSON) as answer:
            assert answer.status == 201, await answer.text()
    config = {"image": "hawker/hello", "guest": {"cpu_kind": "shared", "cpus": 1, "memory_mb": 256}}
    order = {"config": config, "skip_launch": options.skip_launch}
    load = Load([url for url, _ in brokers], options.clients, order, options.rate)
    await load.run(_WARM_UP_S)
    pids = {"workers": [pid for _, pid in workers], "brokers": [pid for _, pid in brokers]}
    before = {name: sum(map(cpu_s, each)) for name, each in pids.items()}
    own = process_time()
    took_s = await load.run(options.seconds)
    spent = {name: sum(map(cpu_s, each)) - before[name] for name, each in pids.items()}
    spent["clients"] = process_time() - own
    _tell(options, load, took_s, spent)


def _tell(options: argparse.Namespace, load: Load, took_s: float, spent: dict[str, float]) -> None:
    samples = Samples("order", load.ms)
    shares = ", ".join(f"{name} {1000 * seconds / max(1, len(load.ms)):.2f} ms" for name, seconds in spent.items())
    asked = (
        f"{options.rate:g} orders/s asked" if options.rate else f"{options.clients} clients, each order after the last"
    )
    print("| workers | brokers | load | filled/s | p50 ms | p99 ms | refused |\n|---:|---:|---|---:|---:|---:|---:|")
    print(
        f"| {options.workers} | {options.brokers} | {asked} | {len(load.ms) / took_s:.0f} | {samples.median:.1f} |"
        f" {samples.p99:.1f} | {sum(load.refused.values())} |"
    )
    print(f"processor time for each order: {shares}")
    for text, times in load.refused.items():
        print(f"refused {times} times: {text}")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes end, too
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rate", type=float, default=0.0, help="orders a second, instead of one after the other")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--skip-launch", action="store_true", help="machines are created and not started")
    parser.add_argument("--market", default="", help="the market's TOML file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hawker-bench-") as directory:
        places = [(str(number), f"{directory}/{number}") for number in range(options.workers)]
        with processes([("worker", *place) for place in places]) as workers:
            urls = [url for url, _ in workers]
            with processes([("broker", options.market, *urls)] * options.brokers) as brokers:
                anyio.run(measure, options, workers, brokers, backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main()

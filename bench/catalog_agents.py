"""How long after its answer a change is seen at its own node and at another one, with the built-in catalog and with
real Corrosion agents, in one run: two nodes with all their parts on loopback, one agent beside each.
`PYTHONPATH=. HAWKER_CORROSION=/path/to/corrosion python bench/catalog_agents.py [--changes 50]`.

A change is a new app; it is seen when the node's API knows it for a client that says nothing of earlier calls.
"""

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp

import anyio

from hawker.api.client import Client
from hawker.errors import NotFound
from tests.e2e.catalog_agents import catalog_agents, settings_for
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import Host, host

LOOK_EVERY_S = 0.002
BETWEEN_S = 0.05
WITHIN_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=50)
    changes = parser.parse_args().changes
    print(f"{'catalog':<10} {'seen at':<10} {'p50':>8} {'p90':>8} {'longest':>8}")
    for kind in ("built-in", "corrosion"):
        folder = Path(mkdtemp(prefix="hawker-bench-"))
        try:
            with two_nodes(folder, kind) as (first, second):
                anyio.run(measure, kind, first, second, changes)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def two_nodes(folder: Path, kind: str) -> Iterator[tuple[Host, Host]]:
    with ExitStack() as stack:
        hosts = [stack.enter_context(host(folder / str(number), number)) for number in range(2)]
        if kind == "corrosion":
            agents = stack.enter_context(catalog_agents(folder, kind, 2))
            for each, agent in zip(hosts, agents, strict=True):
                each.node.environment.update(settings_for(agent, each.node.directory))
        first, second = hosts
        first.node.start("--advertise", first.address, "--peer-port", str(first.port))
        said = second.join(first.node)
        if said.returncode:
            sys.exit(said.stderr)
        second.node.start()
        yield first, second
        for each in reversed(hosts):
            each.node.withdraw()


async def measure(kind: str, first: Host, second: Host, changes: int) -> None:
    async with first.node.client() as one, second.node.client() as other:
        await seen(other, (await Shop(one, "warm").open()).app)
        own: list[float] = []
        far: list[float] = []
        for number in range(changes):
            app = f"change-{number}"
            await Shop(one, app).open()
            began = time.monotonic()
            await seen(one, app)
            own.append(time.monotonic() - began)
            await seen(other, app)
            far.append(time.monotonic() - began)
            await anyio.sleep(BETWEEN_S)
    for where, samples in (("own node", own), ("other node", far)):
        print(f"{kind:<10} {where:<10} {' '.join(map(milliseconds, figures(samples)))}")


async def seen(client: Client, app: str) -> None:
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                await Shop(client, app).machines()
            except NotFound:
                await anyio.sleep(LOOK_EVERY_S)
            else:
                return


def figures(samples: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(samples), statistics.quantiles(samples, n=10)[-1], max(samples)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:>5.0f} ms"


if __name__ == "__main__":
    main()

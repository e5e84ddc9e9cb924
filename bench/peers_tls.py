"""What a call between nodes costs over TLS beside one in plain: both ends in one process, in turns, over a kept
connection, and the first call of a new one.

    PYTHONPATH=. python bench/peers_tls.py [calls]
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

import uvloop
from figures import Samples, table

from hawker.api.caller import Caller
from hawker.api.contract.machine import GET_MACHINE
from hawker.api.listener import listening
from hawker.api.server import Server
from hawker.auth.node_certificate import NodePapers
from hawker.auth.peer_key import PeerTokens
from hawker.clock import SystemClock
from hawker.gateway.peers import HttpPeers
from hawker.http.mutual_tls import MutualTls
from tests.api.serving import Fake
from tests.gateway.test_peers import ANY, FAR, KEY, PARAMS

_ROUNDS, _WARM_UP = 6, 200
_NEW = 200
_PAUSE_S = 0.011  # a listener lets in 100 newcomers a second
_TOKENS = PeerTokens(lambda: (KEY,))
_TLS = MutualTls(NodePapers(FAR, lambda: (KEY,)))


@asynccontextmanager
async def _caller(url: str) -> AsyncIterator[Caller]:
    peers = HttpPeers({FAR: url}.get, _TOKENS.own, me=FAR, tls=_TLS)
    try:
        yield peers.caller(FAR, behalf="bench")
    finally:
        await peers.close()


async def _timed_ms(caller: Caller) -> float:
    began = time.perf_counter()
    await caller.call(GET_MACHINE, params=PARAMS)
    return (time.perf_counter() - began) * 1000


async def _kept(fake: Fake, url: str, calls: int) -> tuple[list[float], float]:
    """Milliseconds of each call, and microseconds of a processor for one, both ends together."""
    async with _caller(url) as caller:
        for _ in range(_WARM_UP):
            await _timed_ms(caller)
        began = time.process_time()
        took = [await _timed_ms(caller) for _ in range(calls)]
        used = (time.process_time() - began) / calls * 1e6
    fake.calls.clear()
    return took, used


async def _first_ms(url: str) -> float:
    await asyncio.sleep(_PAUSE_S)
    async with _caller(url) as caller:
        return await _timed_ms(caller)


async def main(calls: int) -> None:
    fake = Fake()
    handlers = fake.handlers(ANY)
    servers = [Server(handlers, _TOKENS, SystemClock(), routes=ANY, between_nodes=True) for _ in range(2)]
    async with listening(servers[0], "127.0.0.1", 0) as plain, listening(servers[1], "127.0.0.1", 0, _TLS) as tls:
        ways = {"plain": plain, "TLS": tls}
        kept: dict[str, list[float]] = {name: [] for name in ways}
        used: dict[str, list[float]] = {name: [] for name in ways}
        first: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(_ROUNDS):
            for name, url in ways.items():
                took, each = await _kept(fake, url, calls)
                kept[name] += took
                used[name].append(each)
        for _ in range(_NEW):
            for name, url in ways.items():
                first[name].append(await _first_ms(url))
    for samples in (kept, first):
        rows = [Samples(name, ms) for name, ms in samples.items()]
        print(table(rows, rows[0]))
    print(", ".join(f"{name}: {median(each):.0f} µs of a processor" for name, each in used.items()))


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))

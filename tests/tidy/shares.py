"""What tenants share has a key: pools, queues and limiters are made in `fair/`, or are somebody's own with a reason."""

import ast
from collections.abc import Iterator, Mapping

from tests.tidy.calls import dotted, origins
from tests.tidy.tree import File, Finding, Tree

_THREAD = "no pool says whose work it is: `fair.threads.in_thread`"
_LIMIT = "has no key: `fair.turns.Turns`, with a line in `fair.table`"
_QUEUE = "has no key: whose queue it is, and what bounds it, is a line in exceptions.py"
_LISTENER = "takes connections of anybody: a line in exceptions.py says whose places they are"
_SESSION = "is shared by all who use it: `fair.sessions` says how it is bounded"

UNKEYED: Mapping[str, str] = {
    "anyio.to_thread.run_sync": _THREAD,
    "anyio.open_file": _THREAD,
    "asyncio.to_thread": _THREAD,
    "concurrent.futures.ThreadPoolExecutor": _THREAD,
    "anyio.CapacityLimiter": _LIMIT,
    "anyio.Semaphore": _LIMIT,
    "asyncio.Semaphore": _LIMIT,
    "asyncio.BoundedSemaphore": _LIMIT,
    "threading.Semaphore": _LIMIT,
    "anyio.create_memory_object_stream": _QUEUE,
    "asyncio.Queue": _QUEUE,
    "queue.Queue": _QUEUE,
    "queue.SimpleQueue": _QUEUE,
    "asyncio.LifoQueue": _QUEUE,
    "asyncio.PriorityQueue": _QUEUE,
    "queue.LifoQueue": _QUEUE,
    "queue.PriorityQueue": _QUEUE,
    "multiprocessing.Queue": _QUEUE,
    "collections.deque": _QUEUE,
    "concurrent.futures.ProcessPoolExecutor": _THREAD,
    "multiprocessing.Pool": _THREAD,
    "threading.BoundedSemaphore": _LIMIT,
    "hawker.token_bucket.TokenBucket": "has no key: `TokenBuckets`",
    "hawker.fair.turns.Share": "is a line in `fair.table`",
    "asyncio.start_server": _LISTENER,
    "asyncio.start_unix_server": _LISTENER,
    "aiohttp.ClientSession": _SESSION,
    "aiohttp.TCPConnector": _SESSION,
}
_ROOM = "src/hawker/fair/"
_NO_DAEMON = ("src/hawker/chaos/", "src/hawker/sim/", "src/hawker/cli/", "src/hawker/proof/")
"""What hurts, plays or asks a node is no node: nobody shares it."""


def unkeyed_shares(tree: Tree) -> Iterator[Finding]:
    """A pool, queue, limiter or session that is nobody's share is everybody's: one tenant can have it all."""
    for file in tree.product():
        if file.path.startswith((_ROOM, *_NO_DAEMON)):
            continue
        for name, line in _made(file):
            if name in UNKEYED:
                yield Finding("unkeyed_shares", file.path, line, name, f"{name} {UNKEYED[name]}")


_OF_LOOPS = {"run_in_executor": "asyncio.to_thread", "create_server": "asyncio.start_server"}


def _has_length(call: ast.Call) -> bool:
    return len(call.args) > 1 or any(keyword.arg == "maxlen" for keyword in call.keywords)


def _made(file: File) -> Iterator[tuple[str, int]]:
    """What is called, and what is passed on to be called; not what only an annotation names."""
    names = origins(file)
    for node in file.nodes:
        if isinstance(node, ast.Call):
            for each in (node.func, *node.args, *(keyword.value for keyword in node.keywords)):
                bare = each.value if isinstance(each, ast.Subscript) else each
                name = dotted(bare, names)
                if name and not (name == "collections.deque" and _has_length(node)):
                    yield name, node.lineno
            if isinstance(node.func, ast.Attribute) and node.func.attr in _OF_LOOPS:
                yield _OF_LOOPS[node.func.attr], node.lineno

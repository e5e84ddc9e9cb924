import pytest

from tests.tidy.shares import unkeyed_shares
from tests.tidy.tree import tree_of


def subjects(text: str, path: str = "src/hawker/worker/health.py") -> list[str]:
    return [finding.subject for finding in unkeyed_shares(tree_of({path: text}))]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import anyio.to_thread\nasync def f():\n    await anyio.to_thread.run_sync(g)", "anyio.to_thread.run_sync"),
        ("from anyio import to_thread\nasync def f():\n    await to_thread.run_sync(g)", "anyio.to_thread.run_sync"),
        ("from anyio.to_thread import run_sync\nstack.push(run_sync, close)", "anyio.to_thread.run_sync"),
        ("import asyncio\nasync def f():\n    await asyncio.to_thread(g)", "asyncio.to_thread"),
        ("async def f(loop):\n    await loop.run_in_executor(None, g)", "asyncio.to_thread"),
        ("import anyio\nlimiter = anyio.CapacityLimiter(40)", "anyio.CapacityLimiter"),
        ("from anyio import Semaphore as Slots\nslots = Slots(4)", "anyio.Semaphore"),
        ("import anyio\na, b = anyio.create_memory_object_stream[int](4)", "anyio.create_memory_object_stream"),
        ("from queue import SimpleQueue\nwaiting: SimpleQueue[int] = SimpleQueue()", "queue.SimpleQueue"),
        ("import aiohttp\nhttp = aiohttp.ClientSession()", "aiohttp.ClientSession"),
        ("from collections import deque\nwaiting: deque[int] = deque()", "collections.deque"),
        ("from hawker.token_bucket import TokenBucket\nbucket = TokenBucket(rate)", "hawker.token_bucket.TokenBucket"),
        ("from hawker.fair.turns import Share, Turns\nt = Turns(Share(name='x'))", "hawker.fair.turns.Share"),
        ("async def f(loop):\n    await loop.create_server(make, sock=listener)", "asyncio.start_server"),
        ("from queue import PriorityQueue\nwaiting = PriorityQueue()", "queue.PriorityQueue"),
        (
            "import aiohttp\nasync def f(x):\n    await x.add(aiohttp.ClientSession())",
            "aiohttp.ClientSession",
        ),
    ],
)
def test_an_unkeyed_share_is_found_under_any_name(text: str, name: str) -> None:
    assert subjects(text) == [name]


@pytest.mark.parametrize(
    "text",
    [
        "import aiohttp\ndef f(http: aiohttp.ClientSession) -> None: ...",
        "from hawker.fair.threads import Pool, in_thread\nasync def f():\n    await in_thread(Pool.HOST, g)",
        "def f(limiter):\n    limiter.Semaphore(4)",
        "from collections import deque\nlast = deque(maxlen=8)",
        "from hawker.fair.turns import Turns\nfrom hawker.fair.table import CHECKS\nt = Turns(CHECKS)",
        "from hawker.token_bucket import TokenBuckets\nb = TokenBuckets(rate)",
    ],
)
def test_a_pool_only_named_or_with_a_key_is_not_found(text: str) -> None:
    assert subjects(text) == []


@pytest.mark.parametrize("room", ["edge", "dns", "host/mesh", "deploys", "logs", "flyfront", "netpolicy", "a_new_one"])
def test_a_pool_is_found_in_every_room(room: str) -> None:
    assert subjects("import anyio\nlimiter = anyio.CapacityLimiter(40)", f"src/hawker/{room}/x.py")


def test_the_room_of_shares_and_what_is_no_daemon_may_make_them() -> None:
    text = "import anyio\nlimiter = anyio.CapacityLimiter(40)"
    assert subjects(text, "src/hawker/fair/threads.py") == []
    assert subjects(text, "src/hawker/chaos/soak.py") == []

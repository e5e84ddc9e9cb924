"""What clients should never send: each gets a clear error in the contract's form, and leaves nothing behind."""

import http.client
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from hawker.api.contract.body import Problem
from tests.e2e.running_node import RunningNode
from tests.e2e.shop import HELLO, Shop

pytestmark = [pytest.mark.anyio, pytest.mark.root]

MIB = 1 << 20


def send(node: RunningNode, method: str, path: str, body: bytes | None = None) -> tuple[int, Problem]:
    parts = urlsplit(node.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {node.token}"})
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("application/json"), answer.read()
        return answer.status, msgspec.json.decode(answer.read(), type=Problem)
    finally:
        connection.close()


def order(**fields: Any) -> bytes:
    return msgspec.json.encode({"config": {"image": HELLO}, **fields})


def config(**fields: Any) -> bytes:
    return order(config={"image": HELLO, **fields})


ORDERS: dict[str, tuple[bytes, int, str]] = {
    "a name with ../ in it": (order(name="../../etc"), 422, "name"),
    "a name with a slash": (order(name="a/b"), 422, "name"),
    "a name of 10000 letters": (order(name="a" * 10_000), 422, "name"),
    "a name with a newline": (order(name="a\nb"), 422, "name"),
    "a memory of 0": (config(guest={"memory_mb": 0}), 422, "config.guest.memory_mb"),
    "a memory below 0": (config(guest={"memory_mb": -1}), 422, "config.guest.memory_mb"),
    "a memory of 1 PB": (config(guest={"memory_mb": 1 << 30}), 422, "config.guest.memory_mb"),
    "a memory of 2**70": (config(guest={"memory_mb": 1 << 63}), 422, "config.guest.memory_mb"),
    "no cpus": (config(guest={"cpus": 0}), 422, "config.guest.cpus"),
    "a kind of cpu that is none": (config(guest={"cpu_kind": "quantum"}), 422, "config.guest.cpu_kind"),
    "an unknown field of the order": (order(nmae="x"), 422, "nmae is not a known field"),
    "an unknown field of the config": (config(evn={"A": "b"}), 422, "config.evn is not a known field"),
    "an unknown field deep inside": (config(guest={"memory": 1}), 422, "config.guest.memory is not a known field"),
    "a text for a number": (config(guest={"cpus": "two"}), 422, "config.guest.cpus"),
    "a list for a config": (b'{"config": []}', 422, "config"),
    "a number for an image": (config(image=5), 422, "config.image"),
    "no config": (b"{}", 422, "config"),
    "no image": (order(config={}), 422, "config.image"),
    "null for everything": (b"null", 422, ""),
    "a variable with = in its name": (config(env={"A=B": "c"}), 422, "config.env"),
    "a variable with a zero byte": (config(env={"A": "b\0c"}), 422, "config.env"),
    "an environment of 200 kB": (config(env={"A": "x" * 200_000}), 422, "config.env"),
    "a command with a zero byte": (config(init={"cmd": ["a\0b"]}), 422, "config.init"),
    "a file outside": (config(files=[{"guest_path": "/a/../../b", "raw_value": "eA=="}]), 422, "config.files[0]"),
    "a file that is not base64": (config(files=[{"guest_path": "/a", "raw_value": "!"}]), 422, "config.files[0]"),
    "a policy that is none": (config(restart={"policy": "maybe"}), 422, "config.restart.policy"),
    "a signal that is none": (config(stop_config={"signal": "SIGNONE"}), 422, "config.stop_config.signal"),
    "a check on port 0": (config(checks={"c": {"type": "tcp", "port": 0}}), 422, "config.checks.c.port"),
    "an image with control characters": (config(image="a\x1b[2Jb"), 422, "config.image"),
    "half a JSON": (b'{"config": {"image"', 400, "JSON"),
    "no JSON at all": (b"image=hawker/hello", 400, "JSON"),
    "nothing": (b"", 400, "body"),
    "bytes that are no text": (b'{"config": {"image": "\xff\xfe"}}', 400, "JSON"),
    "10000 lists in each other": (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400, "lists and objects"),
}


@pytest.mark.parametrize("what", ORDERS)
async def test_an_order_that_cannot_be(shop: Shop, node: RunningNode, what: str) -> None:
    body, status, named = ORDERS[what]
    got, problem = send(node, "POST", f"/v1/apps/{shop.app}/machines", body)
    assert (got, problem.status) == (status, "unknown")
    assert named in problem.error
    assert len(problem.error) < 1000 and problem.error.isprintable()
    assert await shop.machines() == []


CALLS: dict[str, tuple[str, str, bytes | None, int]] = {
    "no such path": ("GET", "/v2/nothing", None, 404),
    "a path upwards": ("GET", "/v1/apps/../../etc/passwd", None, 404),
    "an app with an encoded slash": ("GET", "/v1/apps/..%2f..%2fetc", None, 404),
    "a method that the path has not": ("PUT", "/v1/apps", b"{}", 405),
    "a machine that is none": ("GET", "/v1/apps/{app}/machines/..%2f..", None, 404),
    "an app with ../ in its name": ("POST", "/v1/apps", b'{"app_name": "../x", "org_slug": "o"}', 422),
    "an app without a name": ("POST", "/v1/apps", b'{"org_slug": "o"}', 422),
    "a network with a slash": ("POST", "/v1/apps", b'{"name": "x", "org_slug": "o", "network": "a/b"}', 422),
    "a limit that is no number": ("GET", "/v1/apps/{app}/machines?limit=many", None, 400),
    "a limit below 1": ("GET", "/v1/apps/{app}/machines?limit=-1", None, 400),
    "a state that is none": ("GET", "/v1/apps/{app}/machines?state=flying", None, 400),
    "a cursor that is none": ("GET", "/v1/apps/{app}/machines?limit=1&cursor=%00%ff", None, 400),
    "a wait of an hour": ("GET", "/v1/apps/{app}/machines/{machine}/wait?timeout=3600", None, 400),
    "a wait for no state": ("GET", "/v1/apps/{app}/machines/{machine}/wait?state=flying", None, 400),
    "a stop with no signal": ("POST", "/v1/apps/{app}/machines/{machine}/stop", b'{"signal": "NONE"}', 400),
    "a stop in a year": ("POST", "/v1/apps/{app}/machines/{machine}/stop", b'{"timeout": "8760h"}', 400),
    "a signal that is none": ("POST", "/v1/apps/{app}/machines/{machine}/signal", b'{"signal": 99}', 400),
    "an exec of nothing": ("POST", "/v1/apps/{app}/machines/{machine}/exec", b"{}", 400),
    "an exec with half a quote": ("POST", "/v1/apps/{app}/machines/{machine}/exec", b'{"cmd": "echo \\"x"}', 400),
    "a run that is none": ("GET", "/hawker/v1/runs/..%2f", None, 404),
    "an import of noise": ("POST", "/hawker/v1/images/import?reference=a/b:c", b"noise" * 1000, 400),
}


@pytest.fixture(scope="module")
async def target(node: RunningNode) -> dict[str, str]:
    """A machine that all bad calls are about, and none may change."""
    async with node.client() as client:
        shop = await Shop(client, "target").open()
        machine = await shop.run({"image": HELLO})
        return {"app": shop.app, "machine": machine.id}


@pytest.mark.parametrize("what", CALLS)
async def test_a_call_that_cannot_be(shop: Shop, node: RunningNode, target: dict[str, str], what: str) -> None:
    method, path, body, status = CALLS[what]
    there = Shop(shop.client, target["app"])
    before = await there.get(target["machine"])
    got, problem = send(node, method, path.format(**target), body)
    assert got == status, problem
    assert problem.error and len(problem.error) < 1000
    assert await there.get(target["machine"]) == before


async def test_a_body_of_100_mb_is_refused_unread(shop: Shop, node: RunningNode) -> None:
    before = memory_of(node.process.pid)
    answer = send_body(node, f"/v1/apps/{shop.app}/machines", 100 * MIB)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"larger than" in answer
    assert memory_of(node.process.pid) - before < 32 * MIB
    assert await shop.machines() == []


def send_body(node: RunningNode, path: str, size: int) -> bytes:
    """Send as much of a body as the node takes; what it answers."""
    parts = urlsplit(node.url)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer {node.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    )
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=60) as connection:
        connection.sendall(head.encode())
        try:
            for _ in range(size // MIB):
                connection.sendall(b" " * MIB)
        except OSError:
            pass  # it has heard enough
        return connection.recv(65_536)


def memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

"""The catalog's own HTTP API of a real node: for whoever has the root token, over HTTP/1.1."""

from pathlib import Path

import aiohttp
import pytest

from tests.e2e.running_node import RunningNode
from tests.e2e.test_fleet_join import peer_port
from tests.ports import free_port

pytestmark = pytest.mark.anyio

HOST = "127.0.0.5"


async def test_only_the_root_token_opens_the_catalog(tmp_path: Path) -> None:
    url = f"{HOST}:{free_port()}"
    node = RunningNode(tmp_path, "--driver", "process", "--advertise", HOST, "--peer-port", str(peer_port(HOST)))
    try:
        node.start("--catalog-listen", url)
        async with aiohttp.ClientSession() as session:
            for headers in ({}, {"Authorization": "Bearer guess"}):
                refused = await session.post(f"http://{url}/v1/queries", json="SELECT 7", headers=headers)
                assert (refused.status, await refused.read()) == (401, b"")
            token = {"Authorization": f"Bearer {node.token}"}
            answer = await session.post(f"http://{url}/v1/queries", json="SELECT 7", headers=token)
            assert answer.status == 200 and "[7]" in await answer.text()
    finally:
        strays = node.withdraw()
    assert not strays

"""What one tenant does with its own token, and another one notices nothing of, on a real node."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hawker.api.client import Client
from hawker.api.contract.image import PULL_IMAGE, PullRequest
from hawker.api.contract.node import HEALTH
from hawker.errors import BadRequest, Forbidden, NotFound
from hawker.log import Secret
from tests.e2e.command_line import narrowed
from tests.e2e.running_node import RunningNode
from tests.e2e.shop import HELLO, Shop
from tests.worker.images import image_in

pytestmark = [pytest.mark.anyio, pytest.mark.root]


@asynccontextmanager
async def tenant(node: RunningNode, shop: Shop, actions: str = "rwcd") -> AsyncIterator[Shop]:
    """The shop as it is seen with a token for its app only."""
    token = await narrowed(node, "--app", shop.app, "--actions", actions)
    async with Client(node.url, Secret(token)) as client:
        yield Shop(client, shop.app)


async def test_pipe_named_as_an_image_keeps_no_thread_of_the_node(
    node: RunningNode, shop: Shop, client: Client, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "f")
    spellings = [f"docker-archive:{tmp_path}{way}f" for way in ("/", "/./", "//", "/././")]
    config = {"containers": [{"name": f"c{n}", "image": image} for n, image in enumerate(spellings)]}
    async with tenant(node, shop) as theirs:
        for _ in range(12):
            with pytest.raises(Forbidden, match="only a token that may write the node"):
                await theirs.order(config)
        machine = await theirs.run({"image": HELLO})
        with pytest.raises(Forbidden, match="only a token that may write the node"):
            await theirs.update(machine.id, {"image": spellings[0]})
    with anyio.fail_after(120):
        for image in spellings:
            with pytest.raises(BadRequest, match="not a regular file"):
                await shop.order({"image": image})
    assert (await client.call(HEALTH)).status == "ok"
    await shop.run({"image": HELLO})


async def test_files_of_the_host_look_all_alike_to_a_tenant(node: RunningNode, shop: Shop) -> None:
    said: set[str] = set()
    async with tenant(node, shop) as theirs:
        for path in ("/etc/shadow", "/root/.ssh/id_rsa", "/root", f"{node.data_dir}/token"):
            with pytest.raises(Forbidden) as refused:
                await theirs.order({"image": f"docker-archive:{path}"})
            said.add(str(refused.value).replace(path, "PATH"))
    assert len(said) == 1


async def test_image_of_another_organization_is_not_on_this_node(
    node: RunningNode, shop: Shop, client: Client, tmp_path: Path
) -> None:
    reference = image_in(tmp_path / "image", "/hello")
    async with client.stream(PULL_IMAGE, body=PullRequest(reference=reference, org="acme")) as events:
        digest = [event.digest async for event in events][-1]
    assert digest
    async with tenant(node, shop) as theirs:
        with pytest.raises(NotFound, match=f"image {digest} is not on this node"):
            await theirs.order({"image": digest})
        machine = await theirs.run({"image": HELLO})
        with pytest.raises(NotFound, match=f"image {digest} is not on this node"):
            await theirs.update(machine.id, {"image": digest})
    async with client.stream(PULL_IMAGE, body=PullRequest(reference=reference, org="tests")) as events:
        async for _ in events:
            pass
    async with tenant(node, shop) as theirs:
        await theirs.order({"image": digest})

"""Narrow tokens against a real node, made and ended with the command line."""

import os
import subprocess

import anyio.to_thread
import pytest

from hawker.api.client import Client
from hawker.errors import Forbidden, Unauthorized
from hawker.log import Secret
from tests.e2e.running_node import HAWKER, RunningNode
from tests.e2e.shop import HELLO, Shop

pytestmark = [pytest.mark.anyio, pytest.mark.root]


async def hawker(node: RunningNode, *words: str, token: str | None = None) -> str:
    """What the command says, with the node's root token unless told."""
    variables = {"HAWKER_URL": node.url, "HAWKER_TOKEN": token or node.token}
    command = [HAWKER, "tokens", *words]
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            command, env=os.environ | variables, capture_output=True, text=True, timeout=300, check=False
        )
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def test_a_narrow_token_does_what_it_allows_and_nothing_else(node: RunningNode, shop: Shop) -> None:
    machine = await shop.run({"image": HELLO})
    reader = await hawker(node, "create", "--app", shop.app, "--actions", "r", "--for", "ann")
    async with Client(node.url, Secret(reader)) as client:
        theirs = Shop(client, shop.app)
        assert [each.id for each in await theirs.machines()] == [machine.id]
        for refused in (theirs.stop(machine.id), theirs.exec(machine.id, "/bin/hello", "env"), theirs.order({})):
            with pytest.raises(Forbidden, match="this token does not allow"):
                await refused
        with pytest.raises(Forbidden, match="limited to: app"):
            await Shop(client, "not-theirs").machines()
        with pytest.raises(Forbidden):
            await Shop(client, "not-theirs").open()
    assert (await shop.get(machine.id)).state == "started"


async def test_a_token_ends_with_the_one_that_it_was_narrowed_from(node: RunningNode, shop: Shop) -> None:
    parent = await hawker(node, "create", "--app", shop.app)
    child = await hawker(node, "attenuate", parent, "--actions", "r")
    async with Client(node.url, Secret(child)) as client:
        await Shop(client, shop.app).machines()
        await hawker(node, "revoke", parent, "--note", "lost", token=parent)
        with pytest.raises(Unauthorized, match="revoked"):
            await Shop(client, shop.app).machines()
    assert "lost" in await hawker(node, "revoked")

"""Elixir's FLAME.FlyBackend (phoenixframework/flame 0.5.3): the one call that it makes, with exactly its fields.

It takes the status 200 alone and the keys `id`, `instance_id` and `private_ip`, sends what it has no value for as null,
and finds all that it needs in the environment of the machine that it runs in.
"""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hawker.api.client import Client
from hawker.api.contract.secret import SET_SECRET, SecretParams, SetSecretRequest
from tests.clients.wire import Wire, wire_to
from tests.e2e.running_node import RunningNode
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import answers, ask
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]

PARENT = base64.b64encode(b"\x83t\x00\x00\x00\x00").decode()  # a term of Erlang's
RETRIED = {409, 412, 422, 429}


@pytest.fixture
async def shop(node: RunningNode) -> AsyncIterator[Shop]:
    async with node.client() as client:
        shop = await Shop(client, "flame").open()
        yield shop
        await shop.close()


async def parent_environment(shop: Shop, token: str) -> dict[str, str]:
    """Of a machine that runs the same image and was given a token as a secret."""
    await set_secret(shop.client, shop.app, "FLY_API_TOKEN", token)
    parent = await shop.run({"image": HELLO})
    said = await shop.said(parent.id, "/bin/hello", "env")
    found = dict(line.split("=", 1) for line in said.splitlines())
    assert found["FLY_PRIVATE_IP"] == parent.private_ip
    return found


async def set_secret(client: Client, app: str, name: str, value: str) -> None:
    params = SecretParams(app_name=app, secret_name=name)
    await client.call(SET_SECRET, params=params, body=SetSecretRequest(value=value))


def runner(env: dict[str, str]) -> dict[str, Any]:
    return {
        "name": f"{env['FLY_APP_NAME']}-flame-0123456789abcdef0123",
        "region": env["FLY_REGION"],
        "config": {
            "image": env["FLY_IMAGE_REF"],
            "init": {},
            "guest": {"cpu_kind": "performance", "cpus": 1, "memory_mb": 4096, "gpu_kind": None, "gpus": None},
            "auto_destroy": True,
            "restart": {"policy": "no"},
            "env": {"PHX_SERVER": "false", "FLAME_PARENT": PARENT},
            "services": [],
            "metadata": {"flame_parent_ip": env["FLY_PRIVATE_IP"]},
        },
    }


def boot(wire: Wire, env: dict[str, str], status: int = 200) -> Any:
    path = f"/v1/apps/{env['FLY_APP_NAME']}/machines"
    return wire.ask("POST", path, runner(env), status=status, Authorization=f"Bearer {env['FLY_API_TOKEN']}")


async def test_a_runner_boots_with_what_its_parent_gives_and_is_gone_when_it_ends(
    node: RunningNode, shop: Shop
) -> None:
    env = await parent_environment(shop, node.token)
    made = boot(wire_to(node), env)
    machine = await shop.wait(made["id"], "started")
    assert (machine.private_ip, machine.version) == (made["private_ip"], made["instance_id"])
    await eventually(lambda: answers(made["private_ip"]))
    inside = dict(line.split("=", 1) for line in ask(made["private_ip"], "/env").body.splitlines())
    assert (inside["FLAME_PARENT"], inside["PHX_SERVER"]) == (PARENT, "false")
    assert (inside["FLY_PRIVATE_IP"], inside["FLY_MACHINE_ID"]) == (made["private_ip"], made["id"])
    assert ask(made["private_ip"], "/exit/0", method="POST").status == 200
    await shop.gone(made["id"])
    assert made["id"] not in {each.id for each in await shop.machines()}


async def test_a_runner_that_fails_is_not_started_again(node: RunningNode, shop: Shop) -> None:
    env = await parent_environment(shop, node.token)
    made = boot(wire_to(node), env)
    await shop.wait(made["id"], "started")
    await eventually(lambda: answers(made["private_ip"]))
    ask(made["private_ip"], "/exit/3", method="POST")
    await shop.gone(made["id"])
    assert [exit.exit_code for exit in await shop.exits(made["id"])] == [3]


async def test_a_refusal_is_one_that_it_tries_again(node: RunningNode, shop: Shop) -> None:
    """A name that is taken, as after an answer that was lost; and a machine that is too large for the node."""
    env = await parent_environment(shop, node.token)
    made = boot(wire_to(node), env)
    assert 409 in RETRIED
    assert "unique machine name violation" in boot(wire_to(node), env, status=409)["error"]
    await shop.destroy(made["id"])
    await shop.gone(made["id"])
    boot(wire_to(node), env)


async def test_the_variables_its_parent_needs_are_in_the_environment(node: RunningNode, shop: Shop) -> None:
    env = await parent_environment(shop, node.token)
    assert (env["FLY_APP_NAME"], env["FLY_REGION"], env["FLY_IMAGE_REF"]) == (shop.app, "local", HELLO)
    assert env["FLY_API_TOKEN"] == node.token

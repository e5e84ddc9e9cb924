"""The audit logs of real nodes, read at any of them: who did what is told with its host, and who is silent."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from hawker.api.client import Client
from hawker.cli.exits import ExitStatus
from hawker.errors import Unavailable
from tests.e2e.command_line import CommandLine, narrowed
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host, order_at, states, three_hosts
from tests.waiting import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.long(
        reason="two nodes; tests/gateway/test_audit_logs.py asks played ones, tests/cli/commands/test_audit.py has "
        "the commands"
    ),
]


def hawker_at(host: Host, token: str | None = None) -> CommandLine:
    node = host.node
    return CommandLine(node.environment | {"HAWKER_URL": node.url, "HAWKER_TOKEN": token or node.token})


async def test_any_node_tells_what_was_done_at_all_and_names_who_is_silent(tmp_path: Path) -> None:
    with three_hosts(tmp_path) as (first, second, _):
        assert second.join(first.node).returncode == 0
        second.node.start()
        here, there = first.node.node_id, second.node.node_id
        async with first.node.client() as client:
            await eventually(lambda: _alive(client, {here, there}), WITHIN_S)
            shop = Shop(client, "shop")
            await eventually(lambda: _open(shop), WITHIN_S)
            machine = await order_at(shop, 1, "exec sleep 600")
            assert await shop.said(machine.id, "/bin/echo", "hello") == "hello\n"

        hawker = hawker_at(second)
        exported = [json.loads(line) for line in hawker.say("audit", "export", "--what", "exec_machine").splitlines()]
        assert {(line["host"], line["entry"].get("status", 0)) for line in exported} == {
            (here, 0), (here, 200), (there, 0), (there, 200),
        }  # fmt: skip
        assert [line["entry"]["at"] for line in exported] == sorted(line["entry"]["at"] for line in exported)
        assert {line["entry"]["node"] for line in exported if line["host"] == there} == {here}
        listed = hawker.say("audit", "list", "--node", here, "--machine", machine.id).splitlines()
        assert listed[0].split()[:2] == ["HOST", "NUMBER"] and {line.split()[0] for line in listed[1:]} == {here}

        whole = tmp_path / "audit.jsonl"
        whole.write_text(hawker.say("audit", "export"))
        for checked in (hawker.say("audit", "verify"), hawker.say("audit", "verify", str(whole))):
            assert [line.split(":")[0] for line in checked.splitlines()] == sorted((here, there))
            assert checked.count("the chain holds") == 2
        whole.write_text(whole.read_text().replace('"exec_machine"', '"stop_machine"', 1))
        edited = hawker("audit", "verify", str(whole))
        assert edited.status == ExitStatus.FAILED and "it was changed" in edited.err

        reader = await narrowed(first.node, "--actions", "r")
        assert hawker_at(first, reader)("audit", "list").status == ExitStatus.FAILED

        second.node.kill()
        left = hawker_at(first)("audit", "export")
        assert left.status == ExitStatus.UNAVAILABLE and f"node {there} in region mad" in left.err
        assert {json.loads(line)["host"] for line in left.out.splitlines()} == {here}


async def _alive(client: Client, ids: set[str]) -> bool:
    found = await states(client)
    return set(found) == ids and set(found.values()) == {"alive"}


async def _open(shop: Shop) -> bool:
    """A gateway sees that a node is there later than gossip."""
    with suppress(Unavailable):
        await shop.open()
        return True
    return False

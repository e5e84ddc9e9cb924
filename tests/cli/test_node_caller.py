"""The light way for what is asked, the long one only for what needs it."""

import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from hawker.api.contract.app import LIST_APPS
from hawker.api.contract.exec import MACHINE_TERMINAL, TerminalRequest
from hawker.api.contract.image import IMPORT_IMAGE, PULL_IMAGE, ImportQuery, PullRequest
from hawker.api.contract.machine import MachineParams
from hawker.api.routes import ROUTES
from hawker.cli.node_caller import NodeCaller
from tests.api.samples import sample
from tests.api.serving import TOKEN, Fake, served


@pytest.mark.anyio
async def test_every_kind_of_call_finds_its_way() -> None:
    async def data() -> AsyncIterator[bytes]:
        yield b"bytes"

    fake = Fake()
    machine = MachineParams(app_name="a", machine_id="m")
    async with served(fake.handlers(ROUTES)) as node, NodeCaller(node.url, TOKEN) as caller:
        await caller.call(LIST_APPS)
        async with caller.stream(PULL_IMAGE, body=PullRequest(reference="a")) as events:
            assert [event async for event in events]
        await caller.upload(IMPORT_IMAGE, data(), query=ImportQuery(reference="a"))
        async with caller.socket(MACHINE_TERMINAL, TerminalRequest(command=("a",)), params=machine) as channel:
            await channel.send(sample(MACHINE_TERMINAL.up))
            assert await channel.receive() is not None
    assert [call.caller for call in fake.calls] == ["alice"] * 4


def test_a_command_that_only_asks_imports_no_large_client() -> None:
    code = "import sys, hawker.cli.commands.machine.list; print('aiohttp' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"

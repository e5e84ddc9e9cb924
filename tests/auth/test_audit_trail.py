"""The audit log as calls over HTTP fill it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hawker.api.audit import AuditedCall
from hawker.api.client import Client
from hawker.api.contract.app import LIST_APPS, AppParams
from hawker.api.contract.exec import EXEC_MACHINE, ExecRequest
from hawker.api.contract.machine import DELETE_MACHINE, GET_MACHINE, MachineParams
from hawker.api.contract.secret import LIST_SECRETS, SET_SECRET, SecretParams, SecretsQuery, SetSecretRequest
from hawker.api.grant import Everything
from hawker.api.listener import listening
from hawker.api.route import AnyRoute
from hawker.api.routes import ROUTES
from hawker.api.server import Server
from hawker.audit.audit_log import AuditEntry, AuditLog, broken, lines, read_line
from hawker.auth.audit_trail import AuditTrail
from hawker.auth.caveat import Actions, Apps, Holder
from hawker.auth.macaroon import key_of, mint, narrow, to_text
from hawker.auth.tokens import Tokens
from hawker.clock import ManualClock, SystemClock
from hawker.errors import Forbidden, Unauthorized, Unavailable
from hawker.log import Secret
from tests.api.samples import sample
from tests.api.serving import Fake

pytestmark = pytest.mark.anyio

ROOT = Secret("hwk_root")
TOKEN = narrow(mint(key_of("hwk_root"), bytes(16), 0), Apps(("shop",)), Holder("ci"))
MACHINE = MachineParams(app_name="shop", machine_id="0" * 14)


class Node:
    def __init__(self, place: Path, fake: Fake) -> None:
        self.place, self.fake = place / "audit", fake
        self.log = AuditLog(self.place, SystemClock(), 1 << 24)
        self.log.open()
        self.clock = ManualClock()
        self.trail = AuditTrail(self.log, self.clock)

    @asynccontextmanager
    async def client(self, token: str) -> AsyncIterator[Client]:
        tokens = Tokens(ROOT, SystemClock(), lambda ids: False, lambda app: "personal")
        server = Server(self.fake.handlers(ROUTES), tokens, SystemClock(), auditor=self.trail)
        async with listening(server, "127.0.0.1", 0) as url, Client(url, Secret(token)) as client:
            yield client

    def entries(self) -> list[AuditEntry]:
        assert broken(lines(self.place)) is None
        return [read_line(line) for line in lines(self.place)]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, Fake())


async def test_control_is_told_before_it_is_done_and_with_its_outcome(node: Node) -> None:
    seen: list[int] = []
    async with node.client(to_text(TOKEN)) as client:
        await client.call(EXEC_MACHINE, params=MACHINE, body=sample(ExecRequest))
        seen.append(len(node.fake.calls))
    begins, ends = node.entries()
    assert (begins.status, ends.status, begins.request) == (0, 200, ends.request)
    assert (begins.who, begins.tokens, begins.source) == ("ci", (TOKEN.id,), "127.0.0.1")
    assert (begins.what, begins.action) == ("exec_machine", "C")
    assert begins.things == {"app_name": "shop", "machine_id": "0" * 14}


async def test_no_value_of_a_secret_and_no_token_is_in_the_log(node: Node) -> None:
    text = to_text(TOKEN)
    async with node.client(text) as client:
        params = SecretParams(app_name="shop", secret_name="DB")
        await client.call(SET_SECRET, params=params, body=SetSecretRequest(value="hunter2"))
        await client.call(LIST_SECRETS, params=AppParams(app_name="shop"), query=SecretsQuery(show_secrets=True))
        await client.call(LIST_SECRETS, params=AppParams(app_name="shop"))
    assert [(entry.what, entry.status) for entry in node.entries()] == [
        *(("set_secret", 0), ("set_secret", 201)),
        *(("list_secrets", 0), ("list_secrets", 200)),
    ]
    written = b"".join(lines(node.place))
    assert b"hunter2" not in written and text.encode() not in written and TOKEN.tag.hex().encode() not in written


async def test_path_of_any_length_makes_a_short_entry(node: Node) -> None:
    async with node.client(to_text(TOKEN)) as client:
        await client.call(DELETE_MACHINE, params=MachineParams(app_name="shop", machine_id="\x01" * 20_000))
    (line,) = lines(node.place)
    assert len(line) < 4096
    assert read_line(line).things["machine_id"] == "\x01" * 256 + "... (20000 characters)"


async def test_a_refusal_is_told_and_a_mere_reading_is_not(node: Node) -> None:
    reader = to_text(narrow(TOKEN, Actions("r")))
    async with node.client(reader) as client:
        await client.call(GET_MACHINE, params=MACHINE)
        await client.call(LIST_APPS)
        for route in (DELETE_MACHINE, EXEC_MACHINE):
            with pytest.raises(Forbidden):
                await client.call(route, params=MACHINE, body=sample(route.body))  # type: ignore[misc]
    async with node.client("hwk_wrong") as stranger:
        with pytest.raises(Unauthorized):
            await stranger.call(DELETE_MACHINE, params=MACHINE)
    assert [(entry.what, entry.status) for entry in node.entries()] == [("delete_machine", 403), ("exec_machine", 403)]


async def test_refusals_of_a_caller_are_told_up_to_a_bound_and_then_counted(node: Node) -> None:
    async def refused(client: Client, times: int) -> None:
        for number in range(times):
            with pytest.raises(Forbidden):
                await client.call(DELETE_MACHINE, params=MachineParams(app_name="shop", machine_id=f"{number:014}"))

    reader, other = narrow(TOKEN, Actions("r")), narrow(mint(key_of("hwk_root"), bytes([1] * 16), 0), Actions("r"))
    async with node.client(to_text(reader)) as client, node.client(to_text(other)) as another:
        await refused(client, 60)
        renamed = narrow(reader, Holder("somebody else"))
        async with node.client(to_text(renamed)) as same:
            await refused(same, 45)
        assert len(node.entries()) == 100
        await refused(another, 1)
        node.clock.advance(10)
        await refused(client, 2)
    node.trail.close()
    told = [(entry.what, entry.things.get("calls"), entry.status) for entry in node.entries()[100:]]
    assert told == [
        ("refused calls left out", "5", 0),
        ("delete_machine", None, 403),
        ("delete_machine", None, 403),
        ("refused calls left out", "1", 0),
    ]


async def test_outcome_of_a_grave_call_and_of_one_that_may_have_done_something_is_never_left_out(node: Node) -> None:
    def call(route: AnyRoute, request: str) -> AuditedCall:
        return AuditedCall(
            route=route,
            grant=Everything("ci", root=False, token_ids=("00", "11")),
            source="",
            node="",
            params={},
            request_id=request,
            grave=route is EXEC_MACHINE,
        )

    for number in range(110):
        await node.trail.ends(call(DELETE_MACHINE, str(number)), 429)
    await node.trail.begins(call(EXEC_MACHINE, "a"))
    await node.trail.ends(call(EXEC_MACHINE, "a"), 404)
    await node.trail.ends(call(DELETE_MACHINE, "b"), 412)
    await node.trail.ends(call(DELETE_MACHINE, "c"), 200)
    await node.trail.ends(call(EXEC_MACHINE, "d"), 403)
    assert [(entry.request, entry.status) for entry in node.entries()[101:]] == [
        *(("a", 0), ("a", 404)),
        *(("b", 412), ("c", 200)),
    ]


async def test_on_a_full_disk_control_is_refused_and_a_destroy_is_not(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(line: bytes) -> None:
        raise OSError(28, "No space left on device")

    async with node.client("hwk_root") as client:
        with monkeypatch.context() as patch:
            patch.setattr(node.log, "_write", full)
            with pytest.raises(Unavailable, match="No space left on device"):
                await client.call(EXEC_MACHINE, params=MACHINE, body=sample(ExecRequest))
            assert not node.fake.calls
            await client.call(DELETE_MACHINE, params=MACHINE)
        assert len(node.fake.calls) == 1
        await client.call(DELETE_MACHINE, params=MACHINE)
    (entry,) = node.entries()
    assert (entry.what, entry.who, entry.lost) == ("delete_machine", "root", 3)

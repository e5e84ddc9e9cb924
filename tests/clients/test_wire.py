"""The node as other clients' bytes meet it: Terraform's paths, Go's nulls and durations, HTTP itself."""

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from tests.clients.wire import Wire, exchange, wire_to
from tests.e2e.running_node import RunningNode

MACHINE = "/v1/apps/{app}/machines/{machine}"
MACHINES = "/v1/apps/{app}/machines"


@pytest.fixture(scope="module")
def wire(node: RunningNode) -> Wire:
    return wire_to(node)


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def names(wire: Wire, numbers: Iterator[int], sleeper: dict[str, Any]) -> Iterator[dict[str, str]]:
    """An app of the test's own with a machine that runs."""
    app = f"wire-{next(numbers)}"
    wire.ask("POST", "/v1/apps", {"app_name": app, "org_slug": "wires"}, status=201)
    made = wire.ask("POST", f"/v1/apps/{app}/machines", {"config": sleeper, "name": "web"})
    wire.waits(f"/v1/apps/{app}/machines/{made['id']}", "started")
    yield {"app": app, "machine": made["id"], "image": sleeper["image"], "config": json.dumps(sleeper)}
    wire.ask("DELETE", f"/v1/apps/{app}?force=true", status=202)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a client sends, and what must come back: the status, and these of the answer's fields."""

    method: str
    path: str
    body: str | None = None
    status: int = 200
    told: Mapping[str, object] = field(default_factory=dict)


LEASE_FIELDS = ("nonce", "expires_at", "owner", "description", "version")

CALLS: dict[str, Sent] = {
    "Terraform takes a lease": Sent("POST", f"{MACHINE}/lease/?ttl=30", status=201, told={"status": "success"}),
    "sosedoff/fly-machines waits a Go duration": Sent(
        "GET", f"{MACHINE}/wait?state=started&timeout=60s", told={"ok": True, "state": "started"}
    ),
    "fly-go waits": Sent("GET", f"{MACHINE}/wait?state=stopped&state=started&timeout=60", told={"state": "started"}),
    "a wait for no version": Sent(
        "GET", f"{MACHINE}/wait?instance_id=&version=&from_event_id=&state=started&timeout=1m0s", told={"ok": True}
    ),
    "fly-go restarts": Sent("POST", f"{MACHINE}/restart?force_stop=false&timeout=5s&signal=SIGTERM", told={"ok": True}),
    "fly-go restarts without a signal": Sent(
        "POST", f"{MACHINE}/restart?force_stop=true&timeout=0s", told={"ok": True}
    ),
    "fly-go stops": Sent(
        "POST", f"{MACHINE}/stop", '{"id": "{machine}", "signal": "SIGTERM", "timeout": "5s"}', told={"ok": True}
    ),
    "a stop in nanoseconds": Sent("POST", f"{MACHINE}/stop", '{"timeout": 5000000000}', told={"ok": True}),
    "a stop with a null for each field": Sent(
        "POST", f"{MACHINE}/stop", '{"id": null, "signal": null, "timeout": null}', told={"ok": True}
    ),
    "a stop with no body": Sent("POST", f"{MACHINE}/stop", told={"ok": True}),
    "a stop with an empty body": Sent("POST", f"{MACHINE}/stop", "", told={"ok": True}),
    "flyctl kills": Sent("POST", f"{MACHINE}/signal", '{"signal": 9}', told={"ok": True}),
    "a signal by its short name": Sent("POST", f"{MACHINE}/signal", '{"signal": "TERM"}', told={"ok": True}),
    "flyctl destroys": Sent("DELETE", f"{MACHINE}?kill=true", told={"ok": True}),
    "flyctl destroys nothing that runs": Sent("DELETE", f"{MACHINE}?kill=false", status=412),
    "fly-go makes an app": Sent(
        "POST",
        "/v1/apps?wait=true",
        '{"org_slug": "wires", "app_name": "{app}-x", "network": "", "app_role_id": ""}',
        201,
        {"name": "{app}-x", "network": "default"},
    ),
    "an app with nulls": Sent(
        "POST",
        "/v1/apps",
        '{"org_slug": "wires", "name": "{app}-y", "network": null, "enable_subdomains": null}',
        201,
        {"name": "{app}-y"},
    ),
    "Go's zero values in an order": Sent(
        "POST",
        MACHINES,
        '{"name": "", "region": "", "lease_ttl": 0, "skip_launch": true, "skip_secrets": false, "config": {"image": '
        '"{image}", "init": {}, "env": null, "guest": null, "mounts": null, "services": null, "checks": null, "files":'
        ' null, "metadata": null, "restart": {}, "processes": [], "standbys": null, "statics": null}}',
        told={"state": "created"},
    ),
    "flyctl updates": Sent(
        "POST",
        MACHINE,
        '{"name": "web", "region": "local", "config": {config}, "skip_secrets": false, "lease_ttl": 13}',
    ),
    "fly-go reads secrets of a version": Sent("GET", "/v1/apps/{app}/secrets?version=0&show_secrets=false"),
    "metadata of a leased machine": Sent("POST", f"{MACHINE}/metadata/fly_canary", '{"value": "true"}', status=204),
    "metadata, as PUT was": Sent(
        "PUT", f"{MACHINE}/metadata", '{"metadata": {"a": "b", "c": null, "d": ""}}', status=204
    ),
    "an exec by the older name": Sent("POST", f"{MACHINE}/exec", '{"cmd": "/bin/sh -c true", "timeout": 60}'),
    "flyctl's exec": Sent("POST", f"{MACHINE}/exec", '{"cmd": "true", "command": null, "container": "", "timeout": 0}'),
    "a list by metadata": Sent("GET", f"{MACHINES}?metadata.fly_platform_version=v2&region=&state="),
    "a parameter that nobody knows": Sent("GET", f"{MACHINE}?fly=1&x=%20"),
}


def filled(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@pytest.mark.parametrize("what", CALLS)
def test_a_call_is_taken_as_it_is_sent(wire: Wire, names: dict[str, str], what: str) -> None:
    sent = CALLS[what]
    body = None if sent.body is None else filled(sent.body, names).encode()
    answer = wire.send(sent.method, filled(sent.path, names), body)
    assert answer.status == sent.status, answer
    told = answer.json if answer.data else {}
    assert {key: told[key] for key in sent.told} == {
        key: filled(value, names) if isinstance(value, str) else value for key, value in sent.told.items()
    }


def test_a_lease_is_flat_as_well(wire: Wire, names: dict[str, str]) -> None:
    """The official document and Terraform's clients have no envelope."""
    taken = wire.ask("POST", filled(f"{MACHINE}/lease/?ttl=30", names), status=201)
    assert {key: taken[key] for key in LEASE_FIELDS} == {key: taken["data"][key] for key in LEASE_FIELDS}
    shown = wire.ask("GET", filled(f"{MACHINE}/lease/", names))
    assert shown["nonce"] == taken["nonce"]
    wire.ask("DELETE", filled(f"{MACHINE}/lease/", names), fly_machine_lease_nonce=taken["nonce"])


@pytest.mark.parametrize(
    "header",
    ["Bearer {token}", "FlyV1 {token}", "Bearer hwk_none,{token}", "FlyV1 fm2_abc,{token}", "Bearer {token},{token}",
     "bearer {token}", "Bearer  {token}"],
)  # fmt: skip
def test_a_token_is_found_among_others(wire: Wire, header: str) -> None:
    value = header.replace("{token}", wire.token)
    assert wire.send("GET", "/v1/apps?org_slug=wires", headers={"Authorization": value}).status == 200


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer ,", "Basic eDp5", "FlyV1 fm2_abc,x", "{token}"])
def test_no_good_token_is_a_401(wire: Wire, header: str) -> None:
    value = header.replace("{token}", wire.token)
    answer = wire.send("GET", "/v1/apps?org_slug=wires", headers={"Authorization": value})
    assert answer.status == 401 and answer.json["error"]


def test_fields_clients_send_besides_are_ignored(wire: Wire) -> None:
    headers = {
        "Cookie": "fly_flaps_affinity=abc; other=1",
        "Fly-Force-Instance-Id": "x",
        "Fly-Client-Version": "1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "TE": "",
        "Accept-Encoding": "gzip",
        "User-Agent": "flyctl/v0",
    }
    answer = wire.send("GET", "/v1/apps?org_slug=wires", headers=headers)
    assert answer.status == 200 and "apps" in answer.json
    assert "content-encoding" not in answer.headers


def test_a_connection_is_kept_for_the_next_call(wire: Wire) -> None:
    connection = wire.connect()
    headers = {"Authorization": f"Bearer {wire.token}"}
    try:
        exchange(connection, "GET", "/v1/apps?org_slug=wires", None, headers)
        kept = connection.sock
        for path, status in (("/v1/apps/none", 404), ("/nowhere", 404), ("/v1/apps?org_slug=wires", 200)):
            assert exchange(connection, "GET", path, None, headers).status == status
            assert connection.sock is kept and kept is not None
        assert exchange(connection, "POST", "/v1/apps", b"no json", headers).status == 400
        assert connection.sock is kept
    finally:
        connection.close()


def raw(wire: Wire, head: str) -> bytes:
    return f"{head}\r\nHost: node\r\nAuthorization: Bearer {wire.token}\r\n".encode()


def received(connection: socket.socket, until: bytes) -> bytes:
    found = b""
    while until not in found:
        part = connection.recv(65_536)
        assert part, found
        found += part
    return found


def test_a_body_that_waits_for_100_continue_is_asked_for(wire: Wire, names: dict[str, str]) -> None:
    body = filled('{"app_name": "{app}-z", "org_slug": "wires"}', names).encode()
    head = raw(wire, "POST /v1/apps HTTP/1.1") + b"Content-Type: application/json\r\nExpect: 100-continue\r\n"
    with wire.socket() as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
        assert received(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert received(connection, b"}").startswith(b"HTTP/1.1 201 ")


def test_a_body_in_chunks_is_read_to_its_end(wire: Wire, names: dict[str, str]) -> None:
    body = filled('{"app_name": "{app}-c", "org_slug": "wires"}', names).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:1], body[1:7], body[7:]))
    head = raw(wire, "POST /v1/apps HTTP/1.1") + b"Transfer-Encoding: chunked\r\n\r\n"
    with wire.socket() as connection:
        connection.sendall(head)
        connection.sendall(chunks)
        connection.sendall(b"0\r\n\r\n")
        answer = received(connection, b'"created_at"')
    assert answer.startswith(b"HTTP/1.1 201 ") and filled("{app}-c", names).encode() in answer


def test_two_calls_sent_at_once_are_answered_in_order(wire: Wire) -> None:
    first, second = raw(wire, "GET /v1/apps/none HTTP/1.1"), raw(wire, "GET /v1/apps?org_slug=wires HTTP/1.1")
    with wire.socket() as connection:
        connection.sendall(first + b"\r\n" + second + b"\r\n")
        answers = received(connection, b'"apps"')
    assert answers.index(b"404 Not Found") < answers.index(b"200 OK")


def test_http_1_0_is_answered_and_closed(wire: Wire) -> None:
    with wire.socket() as connection:
        connection.sendall(raw(wire, "GET /v1/platform/regions HTTP/1.0") + b"\r\n")
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    assert b" 200 OK" in answer and b"Regions" in answer

"""Two real nodes with an edge each: a request that comes to one reaches a machine of the other, wakes it, and is not
cut off by what dies beside it."""

import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group
from anyio.to_thread import run_sync

from hawker.api.contract.app import AppParams
from hawker.api.contract.certificate import IMPORT_CERTIFICATE, ImportCertificateRequest
from hawker.api.contract.machine import WaitState
from hawker.config import PUBLISH
from hawker.errors import HawkerError
from hawker.feed import EVERYWHERE, HOP_OFFSET, process_of
from hawker.ids import AppName
from tests.certificates import issued, root_pem
from tests.e2e.command_line import CommandLine
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_images import SMALL
from tests.e2e.test_fleet_join import HOSTS, WITHIN_S, Host
from tests.e2e.two_hosts import two_hosts
from tests.e2e.web import Page, ask
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]
HTTP_PORT, RAW_PORT, TLS_PORT = 18_080, 18_081, 18_443
NAME = "www.example.com"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """Both up, in one cluster, each with published ports at its own address; the second edge has two processes."""
    flags = [("--edge-address", HOSTS[0]), ("--edge-address", HOSTS[1], "--edge-processes", "2")]
    with two_hosts(tmp_path_factory.mktemp("fleet"), flags) as pair:
        yield pair


@pytest.fixture
async def shop(hosts: tuple[Host, Host], request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    async with hosts[0].node.client() as client:
        shop = Shop(client, request.node.name.removeprefix("test_").replace("_", "-")[:40].rstrip("-"))
        await shop.open()
        yield shop
        await shop.close()


def config(number: int, **service: Any) -> dict[str, Any]:
    """Of a machine at the host of that label, that answers HTTP at two ports, as the edge and as TCP."""
    http = {"internal_port": 8080, "ports": [{"port": HTTP_PORT, "handlers": ["http"]}], **service}
    raw = {"internal_port": 8080, "ports": [{"port": RAW_PORT}], **service}
    metadata = {"hawker_labels": f"host={number}", PUBLISH: EVERYWHERE}
    return {"image": "hawker/hello", "services": [http, raw], "metadata": metadata, **SMALL}


async def page(host: Host, port: int = HTTP_PORT) -> Page:
    return await run_sync(lambda: ask(host.address, port=port))


async def served(host: Host, port: int = HTTP_PORT) -> bool:
    try:
        return (await page(host, port)).status == 200
    except OSError:
        return False


async def test_a_request_reaches_a_machine_of_another_host_and_wakes_it(hosts: tuple[Host, Host], shop: Shop) -> None:
    here, there = hosts
    machine = await shop.run_somewhere(config(1))
    await eventually(lambda: served(here), WITHIN_S)
    assert machine.id in (await page(here)).body
    await eventually(lambda: served(here, RAW_PORT), WITHIN_S)
    assert (await page(there)).status == 200, "at its own host, too"

    await shop.stop(machine.id)
    await shop.wait(machine.id, WaitState.STOPPED)
    assert (await page(here)).status == 200, "it was started for the request"
    assert (await shop.get(machine.id)).state == "started"

    os.kill(edge_process(there), signal.SIGKILL)
    assert (await page(here)).status == 200, "the next process of the gate"
    there.node.kill()
    assert (await page(here)).status == 200, "without the daemon of the machine's host"
    there.node.start()


def edge_process(host: Host) -> int:
    warden = int((host.node.place.edge / "lock").read_text())
    return int(Path(f"/proc/{warden}/task/{warden}/children").read_text().split()[0])


@pytest.mark.parametrize("name", ["shop", "blog"])
async def test_a_request_goes_to_the_process_that_has_the_gates_of_its_app(hosts: tuple[Host, Host], name: str) -> None:
    here, there = hosts
    async with here.node.client() as client:
        app = await Shop(client, name).open()
        machine = await app.run_somewhere(config(1))
        await eventually(lambda: served(here), WITHIN_S)
        await app.stop(machine.id)
        await app.wait(machine.id, WaitState.STOPPED)
        assert machine.id in (await page(here)).body and (await page(there)).status == 200
        assert process_of(AppName(name), 2) == ["shop", "blog"].index(name)
        await app.close()


async def test_a_port_that_a_machine_here_has_is_not_taken_from_elsewhere(hosts: tuple[Host, Host], shop: Shop) -> None:
    here, _ = hosts
    far = await shop.run_somewhere(config(1))
    await eventually(lambda: served(here, RAW_PORT), WITHIN_S)
    async with hosts[0].node.client() as client:
        other = await Shop(client, "fleet-edge-own").open()
        near = await other.run_somewhere(config(0))

        async def own() -> bool:
            try:
                return near.id in (await page(here, RAW_PORT)).body
            except OSError:  # the port goes from one listener to the next
                return False

        await eventually(own, WITHIN_S)
        assert far.id not in (await page(here, RAW_PORT)).body
        await other.close()


_NOISE = bytes(range(250)) * 8
"""Always the same: one of a thousand by chance begins as a record of TLS does, for whose rest the gate waits."""


async def test_the_gate_answers_nobody_from_outside_of_the_cluster(hosts: tuple[Host, Host], shop: Shop) -> None:
    here, there = hosts
    await shop.run_somewhere(config(1))
    await eventually(lambda: served(here), WITHIN_S)
    for noise in (b"GET / HTTP/1.1\r\n\r\n", _NOISE, b"\x16\x03\x01\x00\x05hello"):
        with closing(socket.create_connection((there.address, there.port + HOP_OFFSET), 5)) as stranger:
            stranger.sendall(noise)
            stranger.settimeout(30)
            answer = b"".join(iter(lambda: received(stranger), b""))
            assert b"HTTP" not in answer and len(answer) < 100, "an alert at most"
    assert (await page(here)).status == 200


def received(stranger: socket.socket) -> bytes:
    try:
        return stranger.recv(4096)
    except ConnectionResetError:
        return b""


async def test_every_edge_shows_the_certificate_that_was_imported_at_one_node(
    hosts: tuple[Host, Host], shop: Shop, tmp_path: Path
) -> None:
    here, there = hosts
    wanted = config(0)
    wanted["services"] = [{"internal_port": 8080, "ports": [{"port": TLS_PORT, "handlers": ["tls", "http"]}]}]
    await shop.run_somewhere(wanted)
    chain, key = issued("*.example.com")
    for name, text in (("chain.pem", chain), ("key.pem", key), ("root.pem", root_pem())):
        (tmp_path / name).write_text(text)
    line = CommandLine(here.node.environment | {"HAWKER_DATA_DIR": str(here.node.data_dir)})
    files = ("--chain", str(tmp_path / "chain.pem"), "--key", str(tmp_path / "key.pem"))
    line.say("certs", "import", "-a", shop.app, "*.example.com", *files)

    def secure(host: Host) -> bool:
        context = ssl.create_default_context(cafile=str(tmp_path / "root.pem"))
        try:
            with (
                socket.create_connection((host.address, TLS_PORT), 10) as plain,
                context.wrap_socket(plain, server_hostname=NAME) as tls,
            ):
                tls.sendall(f"GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n".encode())
                return tls.recv(12) == b"HTTP/1.1 200"
        except OSError:
            return False

    await eventually(lambda: run_sync(secure, there), WITHIN_S)
    await eventually(lambda: run_sync(secure, here), WITHIN_S)
    line.say("certs", "remove", "-a", shop.app, "*.example.com")

    async def forgotten() -> bool:
        return not await run_sync(secure, there)

    await eventually(forgotten, WITHIN_S)


async def test_a_host_name_that_two_nodes_are_asked_for_at_once_is_one_apps(hosts: tuple[Host, Host]) -> None:
    chain, key = issued("once.example.com")
    body = ImportCertificateRequest(hostname="once.example.com", fullchain=chain, private_key=key)
    said: list[HawkerError | None] = []
    async with hosts[0].node.client() as one, hosts[1].node.client() as other:
        shops = [Shop(client, f"once-{number}") for number, client in enumerate((one, other))]
        for shop in shops:
            await shop.open()

        async def put(shop: Shop) -> None:
            try:
                await shop.client.call(IMPORT_CERTIFICATE, params=AppParams(app_name=shop.app), body=body)
                said.append(None)
            except HawkerError as error:
                said.append(error)

        async with create_task_group() as asking:
            for shop in shops:
                asking.start_soon(put, shop)
        assert said.count(None) == 1 and any("another app's" in str(error) for error in said), said
        for shop in shops:
            await shop.close()


async def test_route_explain_names_the_other_host(hosts: tuple[Host, Host], shop: Shop) -> None:
    here, there = hosts
    await shop.run_somewhere(config(1))
    await eventually(lambda: served(here), WITHIN_S)
    line = CommandLine(here.node.environment | {"HAWKER_DATA_DIR": str(here.node.data_dir)})
    said = line.say("route", "explain", "-a", shop.app, f"http://{here.address}:{HTTP_PORT}")
    assert f"host {there.node.node_id}" in said

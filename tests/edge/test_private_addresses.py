"""Private addresses of apps on a host without a packet filter: who comes from another network is refused, too."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.edge.edge_kit import OK, PlayedHost, app_server, get, route, says
from tests.edge.udp_kit import ask, udp_app, udp_route
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]
OF_APP, NEIGHBOR, STRANGER = "fdaa:7e57:1:1::2", "fdaa:7e57:1:2::3", "fdaa:7e57:2:1::2"


@pytest.fixture(autouse=True)
def addresses() -> Iterator[None]:
    """All of them are the host's own, so its kernel lets everybody in."""

    def change(verb: str, address: str) -> None:
        command = ("ip", "-6", "address", verb, f"{address}/128", "dev", "lo", *(["nodad"] if verb == "add" else []))
        subprocess.run(command, check=True, timeout=60)

    for address in (OF_APP, NEIGHBOR, STRANGER):
        change("add", address)
    try:
        yield
    finally:
        for address in (OF_APP, NEIGHBOR, STRANGER):
            change("del", address)


async def said_to(source: str, port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(OF_APP, port, local_addr=(source, 0))
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("handlers", [("http",), ()])
async def test_a_connection_from_another_network_is_reset_and_reaches_no_machine(
    host: PlayedHost, handlers: tuple[str, ...]
) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=handlers, publish=OF_APP))
        for balancers in ((), (f"{STRANGER}/128",)):  # a balancer is none of the network either
            host.edge.proxied.believe(balancers)
            with pytest.raises(ConnectionResetError):
                await said_to(STRANGER, port, get())
        assert not seen and host.counted("outsiders_refused") == 2
        assert b"200 OK" in await said_to(NEIGHBOR, port, get())
    assert len(seen) == 1


async def test_a_datagram_from_another_network_begins_no_flow(host: PlayedHost) -> None:
    async with udp_app() as (inside, app):
        port = free_port()
        await host.publish(replace(udp_route(port, inside), publish=OF_APP))
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as stranger:
            stranger.bind((STRANGER, 0))
            stranger.sendto(b"stranger", (OF_APP, port))
            await eventually(lambda: host.counted("outsiders_refused") == 1)
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as neighbor:
            neighbor.setblocking(False)
            neighbor.bind((NEIGHBOR, 0))
            neighbor.connect((OF_APP, port))
            assert await ask(neighbor, b"neighbor") == b"got neighbor"
        assert b"stranger" not in app.heard and host.counted("flows") == 1

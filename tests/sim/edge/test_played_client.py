"""A played client: what it says of regions, and when an answer is whole."""

import asyncio
from typing import cast

import pytest

from hawker.edge.steering import steering_of
from hawker.sim.edge.played_client import PlayedClient, RequestWay, request_of, way_inside
from hawker.sim.edge.played_host import PlayedHost


def test_a_request_says_its_region_as_edges_read_it() -> None:
    def steering(steered: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        lines = request_of("GET", "/r1/1/ok", "shop.test", steered, upgrade=False).split(b"\r\n\r\n")[0].split(b"\r\n")
        pairs = (line.partition(b": ")[::2] for line in lines[1:])
        said = steering_of((name.lower(), value) for name, value in pairs)
        return said.regions, said.preferred

    assert steering("") == ((), ())
    assert steering("force:ams") == (("ams",), ())
    assert steering("prefer:mad") == ((), ("mad",))


def test_a_machine_reaches_nobody_by_an_address_of_another_network_nor_by_another_app_s_name() -> None:
    class Filter:
        def admits(self, network: int, ip: str) -> bool:
            return ip.startswith(f"fdaa:0:{network}:")

        def zoned(self, ip: str) -> str:
            return f"{ip}%here"

    def way(asker: int, network: int, named: str, *, filtered: bool = True) -> RequestWay:
        return way_inside(cast(PlayedHost, Filter()), asker, network, "steady", named, filtered=filtered)

    assert way(7, 7, "steady").admitted and way(7, 7, "steady").address.endswith("%here")
    assert way(7, 7, "steady").source == "fdaa:0:7::2"
    assert not way(9, 7, "steady").admitted and not way(9, 7, "steady").address
    unfiltered = way(9, 7, "steady", filtered=False)
    assert not unfiltered.admitted and unfiltered.address, "the edge has to tell"
    assert not way(7, 7, "lazy").admitted and way(7, 7, "lazy").address


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", 200),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", None),
        (b"", None),
    ],
)
def test_a_client_takes_no_half_of_an_answer(data: bytes, status: int | None) -> None:
    async def hear() -> int | None:
        client = PlayedClient()
        client.data_received(data)
        client.connection_lost(None)
        return await client.answer()

    assert asyncio.run(hear()) == status

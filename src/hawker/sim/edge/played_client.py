"""A client of an edge: how it comes there, the bytes of its request, and what it makes of the answer."""

import asyncio

from hawker.sim.edge.played_apps import private_ip
from hawker.sim.edge.played_host import PlayedHost
from hawker.sim.edge.wires import CLIENT
from hawker.value_object import ValueObject


class RequestWay(ValueObject, frozen=True, kw_only=True):
    """How a request comes to an edge: at the `address`, which is empty where nobody listens, from that of its client,
    the `source`, with the name of the app `named`. One that is not `admitted` reaches nobody."""

    address: str
    source: str
    named: str
    admitted: bool = True


def way_inside(host: PlayedHost, asker: int, network: int, app: str, named: str, *, filtered: bool) -> RequestWay:
    """A machine of the network `asker` asks at an address of the app in `network`; at none where its host is `filtered`
    and drops what it says."""
    ip = private_ip(app, network).ip
    admitted = host.admits(asker, ip)
    return RequestWay(
        address=host.zoned(ip) if admitted or not filtered else "",
        source=f"fdaa:0:{asker}::2",
        named=named,
        admitted=admitted and named == app,
    )


def request_of(method: str, path: str, host: str, steered: str, *, upgrade: bool) -> bytes:
    """With fields that no client may set. `steered`: `force` or `prefer`, a colon and a region, or empty."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Fly-Client-IP: forged", "fly-replay-src: instance=forged"]
    lines += ["X-Forwarded-Proto: forged", f"X-Forwarded-For: {CLIENT}"]
    if steered:
        lines.append("fly-{}-region: {}".format(*steered.split(":")))
    content = "a body of this request" if method in ("POST", "PUT") else ""
    if content:
        lines.append(f"Content-Length: {len(content)}")
    lines += ["Connection: Upgrade", "Upgrade: websocket"] if upgrade and not content else ["Connection: close"]
    return ("\r\n".join(lines) + "\r\n\r\n" + content).encode()


class PlayedClient(asyncio.Protocol):
    """Asks once, and reads the status of the last answer, and all of it."""

    def __init__(self) -> None:
        self._data = b""
        self._ended = asyncio.get_running_loop().create_future()
        self.open = True

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._data.startswith(b"HTTP/1.1 101") and not self._ended.done():
            self._ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if not self._ended.done():
            self._ended.set_result(error)

    @property
    def code(self) -> str:
        """Of an answer of the edge's own."""
        return self._data.partition(b"\r\n\r\n")[2][:4].decode("latin-1")

    async def answer(self) -> int | None:
        """None for one that was cut short."""
        error = await self._ended
        if error is not None or not self._data.startswith(b"HTTP/1.1 "):
            return None
        status = int(self._data[9:12])
        whole = status == 101 or self._data.endswith(b"0\r\n\r\n") or b"chunked" not in self._data.lower()
        return status if whole else None

"""An agent under judgement: how to call it, whose rows it writes, and whose words it is held to."""

from typing import Any
from uuid import uuid4

from tests.catalog.conformance.wire import Caller, Http1, Http2, Wire


class Agent:
    """`corrosion`: it is one, or plays one; else it is our own server."""

    def __init__(self, url: str, protocol: str, node: str, token: str | None = None, *, corrosion: bool) -> None:
        wire: Wire = Http1(url) if protocol == "h1" else Http2(url)
        self.protocol, self.node, self.corrosion = protocol, node, corrosion
        self.http = Caller(wire, {"authorization": f"Bearer {token}"} if token else None)

    async def write(self, *statements: object) -> Any:
        status, answer = await self.http.ask("POST", "/v1/transactions", list(statements))
        assert status == 200, answer
        return answer

    async def put(self, number: int, text: str) -> Any:
        sql = "INSERT INTO conformance (node, id, text) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET text = excluded.text"
        return await self.write([sql, [self.node, number, text]])

    async def remove(self, number: int) -> Any:
        return await self.write(["DELETE FROM conformance WHERE id = ?", [number]])

    async def rows(self, statement: object) -> list[list[Any]]:
        async with self.http.open("POST", "/v1/queries", statement) as answer:
            assert answer.status == 200
            return [line["row"][1] for line in await answer.rest() if "row" in line]

    async def clear(self) -> None:
        """What others before us left in it."""
        await self.write("DELETE FROM conformance", "DELETE FROM conformance_notes")


def fresh(query: str = "SELECT id, text FROM conformance") -> str:
    """The same to read; as a live query another one than all before, which an agent may have kept."""
    return f"{query} WHERE '{uuid4()}' <> ''"

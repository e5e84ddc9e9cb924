"""An agent under judgement: how to call it, and whose rows it writes."""

from typing import Any

from tests.catalog.conformance.wire import Caller, Http1, Http2, Wire
from tests.catalog.served import NODE, Served

QUERY = "SELECT id, text FROM conformance"


class Agent:
    real = False  # a Corrosion agent

    def __init__(self, url: str, protocol: str, node: str, token: str | None = None) -> None:
        wire: Wire = Http1(url) if protocol == "h1" else Http2(url)
        self.protocol, self.node = protocol, node
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


class Ours(Agent):
    def __init__(self, one: Served, protocol: str) -> None:
        super().__init__(one.url, protocol, NODE)
        self.served = one


class Theirs(Agent):
    real = True

    def __init__(self, url: str, protocol: str, token: str | None) -> None:
        super().__init__(url, protocol, "feedbeef", token)

    async def clear(self) -> None:
        await self.write("DELETE FROM conformance", "DELETE FROM conformance_notes")

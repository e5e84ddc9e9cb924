"""The program in a played machine: what it counts, and what it does when it is told to."""

import asyncio

from hawker.ids import AppName, MachineId, NodeId
from hawker.proof.edge_checks import EdgeLedger, SentRequest
from hawker.proof.violation import Invariant, Violation
from hawker.sim.edge.played_client import PlayedClient
from hawker.sim.edge.played_machine import PORT, PlayedMachine
from hawker.sim.edge.wires import CLIENT, Wires
from hawker.sim.harness.loop import LoopClock
from tests.sim.edge.test_wires import in_virtual_time

VOUCHED = f"Fly-Client-IP: {CLIENT}"


def machine(hard: int | None = None) -> PlayedMachine:
    return PlayedMachine(
        id=MachineId("m1"),
        app=AppName("shop"),
        node=NodeId("1"),
        address="10.1.0.1",
        public_port=80,
        network=7,
        hard=hard,
    )


async def asked(
    wires: Wires, ledger: EdgeLedger, number: int, word: str, *fields: str, method: str = "GET"
) -> PlayedClient:
    request = SentRequest(
        id=f"r{number}", app=AppName("shop"), method=method, sent_at=0.0, patience_s=0.0, client=CLIENT
    )
    ledger.requests.setdefault(request.id, request)
    transport, client = await wires.connect(PlayedClient, "10.1.0.1", PORT)
    lines = [f"GET /r{number}/100/{word} HTTP/1.1", "Connection: close", *fields, "", ""]
    transport.write("\r\n".join(lines).encode())
    return client


def test_requests_are_counted_until_they_are_answered() -> None:
    async def play(wires: Wires) -> None:
        found: list[Violation] = []
        ledger, there = EdgeLedger(asyncio.get_running_loop().time, found.append), machine(hard=1)
        there.listen(wires, ledger)
        first = await asked(wires, ledger, 1, "ok", VOUCHED)
        second = await asked(wires, ledger, 2, "pieces", VOUCHED)
        assert [await each.answer() for each in (first, second)] == [200, 200]
        assert [each.invariant for each in found] == [Invariant.HARD_LIMIT] and not ledger.in_flight(there.id)

    in_virtual_time(play)


def test_a_field_that_a_client_set_is_a_finding() -> None:
    async def play(wires: Wires) -> None:
        found: list[Violation] = []
        ledger = EdgeLedger(asyncio.get_running_loop().time, found.append)
        machine().listen(wires, ledger)
        await (await asked(wires, ledger, 1, "ok", "Fly-Client-IP: forged")).answer()
        await (await asked(wires, ledger, 2, "ok", VOUCHED, "fly-replay-src: instance=forged")).answer()
        assert {each.invariant for each in found} == {Invariant.UNFORGED} and len(found) >= 2

    in_virtual_time(play)


def test_a_machine_that_ends_cuts_who_is_in_there() -> None:
    async def play(wires: Wires) -> None:
        ledger, there = EdgeLedger(asyncio.get_running_loop().time, lambda found: None), machine()
        there.listen(wires, ledger)
        client = await asked(wires, ledger, 1, "ok", VOUCHED)
        await LoopClock().sleep(0.05)
        assert ledger.in_flight(there.id) == 1
        there.end(wires, ledger)
        assert await client.answer() is None and not ledger.in_flight(there.id)

    in_virtual_time(play)

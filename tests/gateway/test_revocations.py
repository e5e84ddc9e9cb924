import pytest

from hawker.auth.revocations import Revocations
from hawker.clock import ManualClock
from hawker.gateway.revocations import FleetRevocations
from hawker.record.node import Revocation
from hawker.store.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


async def test_in_a_fleet_what_any_node_ended_counts() -> None:
    clock, told = ManualClock(), dict[str, Revocation]()
    mine = Revocations(MemoryStore(), clock)
    fleet = FleetRevocations(lambda: told, mine)
    assert not fleet(["a", "b"])
    told["a"] = Revocation(token_id="a", at=9.0, by="bob")
    await fleet.add("b", by="ann")
    assert fleet(["x", "a"]) and fleet(["b"]) and mine(["b"]) and not fleet(["x"])
    assert (await fleet.add("a", by="ann")).by == "bob" and not mine(["a"])
    assert [each.token_id for each in fleet.list()] == ["a", "b"]

from pathlib import Path

import pytest

from hawker.clock import ManualClock
from hawker.ids import MachineId, VolumeId
from hawker.proof.violation import Invariant, Violation
from hawker.sim.fleet.checks import bought
from hawker.sim.fleet.client import Buyer, Counted, FleetClient, FleetLedger, Ordered
from hawker.sim.fleet.plan import FleetOperation, FleetVerb
from hawker.sim.harness.trace import Speaker, Trace
from tests.sim.fleet.clusters import cluster_of, ledger_of

pytestmark = pytest.mark.anyio


async def test_a_client_orders_asks_again_and_destroys_what_it_was_told(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as (cluster, hosts, _):
        ledger = ledger_of(cluster)
        client = FleetClient(
            "ann", cluster.call_network, [host.id for host in hosts], ledger, cluster.call_network.clock
        )
        await cluster.call_network.clock.sleep(5)
        await client.begin(0)
        operations = (
            FleetOperation(1, 0.1, "ann", FleetVerb.ORDER, "ann-1", 256, "key", nodes=(0, 1)),
            FleetOperation(2, 0.2, "ann", FleetVerb.AGAIN, "ann-1", nodes=(1, 0)),
            FleetOperation(3, 0.3, "ann", FleetVerb.SPARE, "ann-2", 256, "ann-1", nodes=(1, 0)),
            FleetOperation(4, 5.0, "ann", FleetVerb.DESTROY, "ann-2", nodes=(0,)),
            FleetOperation(5, 5.0, "ann", FleetVerb.STOP, "ann-1", nodes=(0,)),
        )
        await client.work(operations, cluster.call_network.clock.monotonic())
        first, spare = ledger.orders["ann-1"], ledger.orders["ann-2"]
        assert first.machine is not None and spare.watches == first.machine and spare.destroyed
        assert [each.machine for each in ledger.promised] == [first.machine]
        assert ledger.found == [] and ledger.filled == 2


async def test_several_are_ordered_at_once_and_volumes_come_with_a_machine(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as (cluster, hosts, _):
        ledger, clock = ledger_of(cluster), cluster.call_network.clock
        buyer = Buyer("dan", cluster.call_network, [host.id for host in hosts], ledger, clock)
        await clock.sleep(5)
        await buyer.begin(0)
        operations = (
            FleetOperation(1, 0.1, "dan", FleetVerb.COUNT, "dan-1", 2, "key", nodes=(0, 1)),
            FleetOperation(2, 0.2, "dan", FleetVerb.COUNT, "dan-2", 40, "whole", nodes=(1, 0)),
            FleetOperation(3, 0.3, "dan", FleetVerb.VOLUME, "dan-3", nodes=(1, 0), amount=256),
        )
        await buyer.work(operations, clock.monotonic())
        some, many = ledger.counted["dan-1"], ledger.counted["dan-2"]
        assert len(some.machines) == 2 and not some.refused
        assert many.machines == () and many.refused
        assert ledger.orders["dan-3"].machine is not None and len(ledger.promised) == 3
        await clock.sleep(20)
        assert bought(hosts, ledger.counted.values(), ledger.volumes.values()) == []
        less = Counted("dan-1", buyer.app, None, 1, True, refused=True)
        broken = bought(hosts, [less], [VolumeId("vol_gone")])
        assert [each.invariant for each in broken] == [Invariant.FILLED_ONCE, Invariant.ALL_OR_NONE, Invariant.KEPT]
        assert MachineId(some.machines[0]) in {each.machine for each in ledger.promised}


def test_promised_machines_are_those_answered_and_not_destroyed() -> None:
    ledger = FleetLedger(ManualClock(), Trace())
    for label, machine, destroyed in (("a", "m1", False), ("b", "m2", True), ("c", None, False)):
        order = Ordered(label, "app", None, None, MachineId(machine) if machine else None, destroyed)
        ledger.orders[label] = order
    ledger.counted["d"] = Counted("d", "app", None, 2, False, (MachineId("m4"), MachineId("m5")))
    assert [(each.order, each.machine) for each in ledger.promised] == [("a", "m1"), ("d", "m4"), ("d", "m5")]


def test_the_first_machine_that_has_spares_is_known_with_them() -> None:
    ledger = FleetLedger(ManualClock(), Trace())
    assert ledger.spares() == (None, [])
    ledger.orders["a"] = Ordered("a", "app", "k", None, MachineId("m1"))
    ledger.orders["b"] = Ordered("b", "app", "k", MachineId("m1"), MachineId("m2"))
    ledger.orders["c"] = Ordered("c", "app", "k", MachineId("m9"), MachineId("m3"))
    assert ledger.spares() == ("m1", ["m2"])


def test_a_finding_is_told_once() -> None:
    trace = Trace()
    ledger = FleetLedger(ManualClock(), trace)
    for _ in range(2):
        ledger.find([Violation(Invariant.KEPT, "m1", "it is gone")])
    assert [line.kind for line in trace.lines] == [Speaker.FOUND] and len(ledger.found) == 1

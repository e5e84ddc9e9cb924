from pathlib import Path

import pytest

from hawker.ids import MachineId, VolumeId
from hawker.proof.violation import Invariant
from hawker.sim.fleet.buyer import Buyer
from hawker.sim.fleet.checks import bought
from hawker.sim.fleet.ledger import Counted
from hawker.sim.fleet.operation import FleetOperation, FleetVerb
from tests.sim.fleet.town import ledger_of, town_of

pytestmark = pytest.mark.anyio


async def test_several_are_ordered_at_once_and_volumes_come_with_a_machine(tmp_path: Path) -> None:
    async with town_of(tmp_path, 2) as (town, hosts, _):
        ledger, clock = ledger_of(town), town.wire.clock
        buyer = Buyer("dan", town.wire, [host.id for host in hosts], ledger, clock)
        await clock.sleep(5)
        await buyer.begin(0)
        deeds = (
            FleetOperation(1, 0.1, "dan", FleetVerb.COUNT, "dan-1", (0, 1), "key", 2),
            FleetOperation(2, 0.2, "dan", FleetVerb.COUNT, "dan-2", (1, 0), "whole", 40),
            FleetOperation(3, 0.3, "dan", FleetVerb.VOLUME, "dan-3", (1, 0), amount=256),
        )
        await buyer.work(deeds, clock.monotonic())
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

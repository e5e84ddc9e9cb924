from pathlib import Path

import pytest

from hawker.sim.fleet.client import FleetClient
from hawker.sim.fleet.operation import FleetOperation, FleetVerb
from tests.sim.fleet.town import ledger_of, town_of

pytestmark = pytest.mark.anyio


async def test_a_client_orders_asks_again_and_destroys_what_it_was_told(tmp_path: Path) -> None:
    async with town_of(tmp_path, 2) as (town, hosts, _):
        ledger = ledger_of(town)
        client = FleetClient("ann", town.wire, [host.id for host in hosts], ledger, town.wire.clock)
        await town.wire.clock.sleep(5)
        await client.begin(0)
        deeds = (
            FleetOperation(1, 0.1, "ann", FleetVerb.ORDER, "ann-1", (0, 1), "key", 256),
            FleetOperation(2, 0.2, "ann", FleetVerb.AGAIN, "ann-1", (1, 0)),
            FleetOperation(3, 0.3, "ann", FleetVerb.SPARE, "ann-2", (1, 0), "ann-1", 256),
            FleetOperation(4, 5.0, "ann", FleetVerb.DESTROY, "ann-2", (0,)),
            FleetOperation(5, 5.0, "ann", FleetVerb.STOP, "ann-1", (0,)),
        )
        await client.work(deeds, town.wire.clock.monotonic())
        first, spare = ledger.orders["ann-1"], ledger.orders["ann-2"]
        assert first.machine is not None and spare.watches == first.machine and spare.destroyed
        assert [each.machine for each in ledger.promised] == [first.machine]
        assert ledger.found == [] and ledger.filled == 2

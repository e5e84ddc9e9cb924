"""Pure readings of a machine's record."""

import msgspec
import pytest

from hawker.record.machine import Lease, current_lease
from hawker.sim.node.sim_worker import SimWorker

pytestmark = pytest.mark.anyio


async def test_lease_counts_until_it_expires(worker: SimWorker) -> None:
    record = worker.record(await worker.stopped())
    assert current_lease(record, 0.0) is None
    lease = Lease(nonce="n", owner="ann", description="", expires_at=100.0)
    held = msgspec.structs.replace(record, lease=lease)
    assert current_lease(held, 99.9) == lease
    assert current_lease(held, 100.0) is None

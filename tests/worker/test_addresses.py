from ipaddress import IPv4Network

import pytest

from hawker.errors import Conflict
from hawker.ids import MachineId
from hawker.store.memory_store import MemoryStore
from hawker.worker.addresses import free_ipv4
from hawker.worker.records import BY_IPV4, MachineKey

pytestmark = pytest.mark.anyio
POOL = IPv4Network("10.0.0.0/29")


async def _take(store: MemoryStore, number: int) -> str:
    machine_id = MachineId(f"{number:014x}")
    address = free_ipv4(store, POOL, machine_id)
    await store.write(lambda tx: tx.put(BY_IPV4, address, MachineKey(id=machine_id)))
    return address


async def test_every_address_of_the_pool_is_given_once_and_then_none() -> None:
    store = MemoryStore()
    taken = {await _take(store, 3) for _ in range(5)}
    assert taken == {f"10.0.0.{last}" for last in range(2, 7)}, "neither the network, the host nor broadcast"
    with pytest.raises(Conflict, match="insufficient IPs available to fulfill request"):
        await _take(store, 3)


async def test_the_search_begins_where_the_id_says() -> None:
    assert free_ipv4(MemoryStore(), POOL, MachineId(f"{1:014x}")) == "10.0.0.3"
    assert free_ipv4(MemoryStore(), POOL, MachineId(f"{6:014x}")) == "10.0.0.3"

"""Calls go to whoever has what they name: with all that came along, once more where the catalog was behind, and with
an error that names the node where it cannot be reached.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.api.contract.exec import MACHINE_LOGS
from hawker.api.contract.machine import DELETE_MACHINE, GET_MACHINE, DeleteMachineQuery, StopRequest, WaitState
from hawker.api.contract.machine_operation import (
    CREATE_LEASE,
    START_MACHINE,
    STOP_MACHINE,
    WAIT_MACHINE,
    LeaseRequest,
    WaitQuery,
)
from hawker.api.contract.volume import DELETE_VOLUME, GET_VOLUME
from hawker.errors import DeadlineExceeded, Fault, LeaseHeld, NotFound, Unavailable
from hawker.ids import AppName, NodeId
from hawker.record.move import MOVED, MovedRecord
from tests.gateway.town import APP, FAR, HERE, Broker, Host, Town, of_machine, of_volume, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

NOBODY = "0" * 14


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path) as town:
        await first(town).api.app()
        yield town


def first(town: Town) -> Broker:
    return Broker(town, next(iter(town.hosts.values())))


async def far_machine(town: Town) -> tuple[Host, str]:
    """On the node in the other region."""
    machine = await first(town).api.machine(region=FAR)
    host = town.hosts[NodeId(f"{3:08x}")]
    assert [record.id for record in host.worker.machines()] == [machine.id]
    return host, machine.id


async def test_a_machine_of_another_region_is_found_by_asking_there(town: Town) -> None:
    host, machine = await far_machine(town)
    assert town.owner_of_machine(machine) is None
    shown = await Broker(town, next(iter(town.hosts.values()))).api.call(GET_MACHINE, params=of_machine(machine))
    assert shown.id == machine and ("get_machine", "ann") in host.calls


async def test_a_broker_that_is_behind_is_sent_on_to_where_a_machine_moved(town: Town) -> None:
    host, machine = await far_machine(town)
    near = next(iter(town.hosts.values()))
    went = MovedRecord(app=AppName(of_machine(machine).app_name), to=host.id, generation=2, at=0.0)
    await near.worker.store.write(lambda tx: tx.put(MOVED, machine, went))
    broker = Broker(town, near)
    broker.made.note_order(went.app, machine, f"{near.id}:1:1")  # it was seen there a moment ago
    assert (await broker.api.call(GET_MACHINE, params=of_machine(machine))).id == machine
    assert ("get_machine", "ann") in near.calls + host.calls
    await broker.api.call(STOP_MACHINE, params=of_machine(machine))
    assert ("stop_machine", "ann") in host.calls


async def test_nonce_and_caller_travel(town: Town) -> None:
    _, machine = await far_machine(town)
    api = first(town).api
    lease = await api.call(CREATE_LEASE, params=of_machine(machine), body=LeaseRequest(ttl=60))
    assert lease.data.owner == "ann"
    with pytest.raises(LeaseHeld):
        await api.call(START_MACHINE, params=of_machine(machine))
    await api.call(START_MACHINE, params=of_machine(machine), nonce=lease.data.nonce)


async def test_a_write_says_where_it_can_be_read(town: Town) -> None:
    host, machine = await far_machine(town)
    api = first(town).api
    await api.call(START_MACHINE, params=of_machine(machine))
    assert api.metadata.version is not None and api.metadata.version.startswith(f"{host.id}:1:")
    await api.call(GET_MACHINE, params=of_machine(machine))
    assert api.metadata.version is None


async def test_nobody_works_for_longer_than_the_caller_waits(town: Town) -> None:
    host, machine = await far_machine(town)
    api, clock = first(town).api, host.worker.parts.deps.clock
    began = clock.monotonic()
    with pytest.raises(DeadlineExceeded):
        await api.call(
            WAIT_MACHINE,
            params=of_machine(machine),
            query=WaitQuery(state=(WaitState.STARTED,), timeout=60),
            timeout_s=3,
        )
    assert clock.monotonic() - began < 4
    assert host.waited["wait_machine"] == 3


async def test_an_owner_that_is_down_is_named_at_once(town: Town) -> None:
    host, machine = await far_machine(town)
    api = first(town).api
    await api.call(GET_MACHINE, params=of_machine(machine))
    host.down = True
    with pytest.raises(Unavailable, match=f"node {host.id} in region {FAR} is down"):
        await api.call(STOP_MACHINE, params=of_machine(machine))


async def test_an_owner_that_cannot_be_reached_is_named(town: Town) -> None:
    host, machine = await far_machine(town)
    api = first(town).api
    await api.call(GET_MACHINE, params=of_machine(machine))
    host.cut = True
    with pytest.raises(Unavailable, match=f"node {host.id} in region {FAR} cannot be reached: nothing was done"):
        await api.call(STOP_MACHINE, params=of_machine(machine))


async def test_a_machine_that_may_be_at_a_node_that_is_away_is_not_said_to_be_gone(town: Town) -> None:
    host, machine = await far_machine(town)
    host.cut = True
    with pytest.raises(Unavailable, match=host.id):
        await first(town).api.call(GET_MACHINE, params=of_machine(machine))


async def test_a_machine_that_may_be_at_a_node_that_was_not_heard_of_yet_is_not_said_to_be_gone(town: Town) -> None:
    """As at a broker that has just begun: the node may have taken the machine a moment ago, and nobody told of it."""
    api, knows = first(town).api, town.nodes_of_app(AppName(APP))
    near = next(host for host in town.hosts.values() if host.region == HERE and host.id not in knows)
    near.unheard = True
    with pytest.raises(Unavailable, match=f"node {near.id} in region {HERE} has not been heard of since this broker"):
        await api.call(GET_MACHINE, params=of_machine(NOBODY))
    near.unheard, near.down = False, True
    with pytest.raises(NotFound, match="machine not found"):
        await api.call(GET_MACHINE, params=of_machine(NOBODY))


async def test_an_answer_that_is_lost_is_a_fault_after_a_write_only(town: Town) -> None:
    host, machine = await far_machine(town)
    api = first(town).api
    host.deaf = {"start_machine", "get_machine"}
    with pytest.raises(Fault, match="may have taken effect"):
        await api.call(START_MACHINE, params=of_machine(machine))
    with pytest.raises(Unavailable, match="was lost"):
        await api.call(GET_MACHINE, params=of_machine(machine))


async def test_a_row_that_is_stale_costs_one_more_look(town: Town) -> None:
    machine = (await first(town).api.machine()).id
    owner = town.owner_of_machine(machine)
    assert owner is not None
    town.moved[machine] = next(host.id for host in town.hosts.values() if host.id != owner)
    api = first(town).api
    assert (await api.call(GET_MACHINE, params=of_machine(machine))).id == machine
    await api.call(START_MACHINE, params=of_machine(machine))


async def test_a_machine_the_right_owner_does_not_have_is_not_looked_for_elsewhere(town: Town) -> None:
    machine = (await first(town).api.machine()).id
    for host in town.hosts.values():
        host.calls.clear()
    with pytest.raises(NotFound):
        await first(town).api.call(GET_MACHINE, params=of_machine(machine), query=GET_MACHINE.query(version="none"))
    owner = town.owner_of_machine(machine)
    assert all(host.id == owner for host in town.hosts.values() if host.calls)


async def test_a_machine_that_nobody_has_is_not_found(town: Town) -> None:
    await first(town).api.machine()
    with pytest.raises(NotFound, match="machine not found"):
        await first(town).api.call(GET_MACHINE, params=of_machine(NOBODY))
    for hostile in ("../..", "x" * 5000, "%2e"):
        with pytest.raises(NotFound):
            await first(town).api.call(GET_MACHINE, params=of_machine(hostile))


async def test_a_destroyed_machine_is_still_found_by_who_waits_for_it(town: Town) -> None:
    api = first(town).api
    machine = (await api.machine()).id
    await api.call(DELETE_MACHINE, params=of_machine(machine), query=DeleteMachineQuery(force=True))
    query = WaitQuery(state=(WaitState.DESTROYED,), timeout=30)
    assert (await first(town).api.call(WAIT_MACHINE, params=of_machine(machine), query=query)).ok


async def test_a_client_reads_what_it_wrote_through_a_broker_that_is_behind(town: Town) -> None:
    town.freeze()
    api = first(town).api
    machine = (await api.machine(region=FAR)).id
    assert (await api.call(GET_MACHINE, params=of_machine(machine))).id == machine  # this broker saw it pass
    version, other = f"{3:08x}:1:1", first(town).api
    other.version = version
    assert (await other.call(GET_MACHINE, params=of_machine(machine))).id == machine  # the other one asks its origin


async def test_a_stream_is_passed_and_closed(town: Town) -> None:
    machine = (await first(town).api.machine()).id
    async with first(town).api.stream(MACHINE_LOGS, params=of_machine(machine)) as lines:
        assert [line async for line in lines] == []
    with pytest.raises(NotFound):
        async with first(town).api.stream(MACHINE_LOGS, params=of_machine(NOBODY)):
            pass


async def test_volumes_are_passed_by_their_own_rows(town: Town) -> None:
    api = first(town).api
    volume = await api.volume()
    assert (await api.call(GET_VOLUME, params=of_volume(volume.id))).id == volume.id
    await api.call(DELETE_VOLUME, params=of_volume(volume.id))
    with pytest.raises(NotFound):
        await api.call(GET_VOLUME, params=of_volume("vol_0000000000000000"))


async def test_a_body_travels_whole(town: Town) -> None:
    machine = (await first(town).api.machine(region=FAR)).id
    await first(town).api.call(START_MACHINE, params=of_machine(machine))
    await first(town).api.call(STOP_MACHINE, params=of_machine(machine), body=StopRequest(signal="SIGKILL"))

"""An order is filled once, or not at all, whatever is lost on the way and whichever brokers try."""

from pathlib import Path

import anyio
import pytest

from hawker.api.contract.machine import Machine
from hawker.errors import HawkerError, NoRoom, OrderUncertain, Unavailable
from hawker.node import Capacity
from hawker.record.move import MOVED, MovedRecord
from hawker.store.contract import Tx
from tests.gateway.fleet import Broker, Fleet, Loss, fleet_at
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time
pytestmark = pytest.mark.anyio
ONE = Capacity(cpus=4, memory_mib=256, disk_mib=10_000)


async def test_an_order_becomes_one_machine(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 3) as fleet:
        made = await fleet.broker().order()
        assert [record.id for record in fleet.made()] == [made.id]


async def test_a_node_that_cannot_be_reached_is_passed_over(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        fleet.lose("fill", Loss.REFUSED)
        made = await fleet.broker().order()
        assert [record.id for record in fleet.made()] == [made.id]


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER, Loss.LATE])
@pytest.mark.parametrize("cancel", [None, Loss.REQUEST, Loss.ANSWER, Loss.REFUSED, Loss.LATE])
@pytest.mark.parametrize("key", [None, "mine"])
async def test_a_lost_order_is_cancelled_before_the_next_is_asked(
    tmp_path: Path, loss: Loss, cancel: Loss | None, key: str | None
) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        fleet.lose("fill", loss)
        if cancel is not None:
            fleet.lose("cancel_order", cancel)
        made = await fleet.broker().order(key=key)
        await fleet.deliver()
        assert [record.id for record in fleet.made()] == [made.id]
        if key is not None:
            assert (await fleet.broker().order(key=key)).id == made.id
            assert len(fleet.made()) == 1


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER, Loss.LATE])
@pytest.mark.parametrize("key", [None, "mine"])
async def test_without_a_confirmed_cancel_nobody_else_is_asked(tmp_path: Path, loss: Loss, key: str | None) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        fleet.lose("fill", loss)
        fleet.lose("cancel_order", Loss.REFUSED, times=100)
        with pytest.raises(OrderUncertain) as refused:
            await fleet.broker().order(key=key)
        assert len(fleet.made()) <= 1
        assert [name for name, _ in fleet.calls].count("fill") == 1
        fleet.losses.clear()
        again = await fleet.broker().order(key=refused.value.order)
        await fleet.deliver()
        assert [record.id for record in fleet.made()] == [again.id]
        assert (await fleet.broker().order(key=refused.value.order)).id == again.id


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER, Loss.LATE])
async def test_a_cancelled_order_stays_so_when_the_worker_restarts(tmp_path: Path, loss: Loss) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        fleet.lose("fill", loss)
        made = await fleet.broker().order()
        for host in list(fleet.hosts.values()):
            await fleet.restart(host)
        await fleet.deliver()
        assert [record.id for record in fleet.made()] == [made.id]


async def test_a_worker_that_dies_between_order_and_answer_has_what_its_disk_has(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        fleet.lose("fill", Loss.ANSWER)
        fleet.lose("cancel_order", Loss.REFUSED, times=100)
        with pytest.raises(OrderUncertain) as refused:
            await fleet.broker().order()
        for host in list(fleet.hosts.values()):
            await fleet.restart(host)
        fleet.losses.clear()
        again = await fleet.broker().order(key=refused.value.order)
        assert [record.id for record in fleet.made()] == [again.id]


async def test_a_replay_finds_its_machine_through_another_broker(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 3) as fleet:
        first = await fleet.broker().order(key="k")
        assert (await fleet.broker().order(key="k")).id == first.id
        other = await fleet.broker().order(key="l")
        assert other.id != first.id


async def test_equal_keys_at_many_brokers_at_once_make_one_machine(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 3) as fleet:
        fleet.lose("fill", Loss.ANSWER)
        fleet.lose("claim_order", Loss.ANSWER)
        made = await _all(fleet, [fleet.broker() for _ in range(8)], key="k")
        assert len({machine.id for machine in made if isinstance(machine, Machine)}) == 1
        assert len(fleet.made()) == 1
        assert all(isinstance(each, Machine | Unavailable) for each in made)


async def test_for_the_last_slot_one_broker_wins_and_the_others_are_told(tmp_path: Path) -> None:
    async with fleet_at(tmp_path) as fleet:
        await fleet.host(room=ONE)
        await fleet.host(room=ONE)
        made = await _all(fleet, [fleet.broker() for _ in range(5)])
        assert sum(isinstance(each, Machine) for each in made) == 2
        refused = [each for each in made if not isinstance(each, Machine)]
        assert all(isinstance(each, NoRoom) and each.scope == "region" for each in refused)
        assert len(fleet.made()) == 2


async def test_a_refused_key_is_good_again_once_there_is_room(tmp_path: Path) -> None:
    async with fleet_at(tmp_path) as fleet:
        hosts = [await fleet.host(room=ONE), await fleet.host(room=ONE)]
        first, second = [await fleet.broker().order() for _ in hosts]
        for _ in range(3):
            with pytest.raises(NoRoom):
                await fleet.broker().order(key="k")
        for host in hosts:
            assert host.worker is not None
            for record in host.made():
                await host.worker.destroy(record.id, force=True)
            await host.worker.at_rest()
        made = await fleet.broker().order(key="k")
        assert made.id not in (first.id, second.id)
        assert (await fleet.broker().order(key="k")).id == made.id


async def test_a_key_waits_for_the_home_of_its_app(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        fleet.lose("claim_order", Loss.REFUSED)
        with pytest.raises(Unavailable, match="keeps the keys"):
            await fleet.broker().order(key="k")
        assert fleet.made() == []
        assert (await fleet.broker().order(key="k")).id == fleet.made()[0].id


async def test_a_replay_is_answered_while_the_home_keeps_no_claims(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        made = await fleet.broker().order(key="k")
        fleet.lose("claim_order", Loss.REFUSED, times=9)
        assert (await fleet.broker().order(key="k")).id == made.id
        assert len(fleet.made()) == 1


async def test_an_error_of_the_order_itself_is_said_at_once(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 3) as fleet:
        with pytest.raises(HawkerError) as refused:
            await fleet.broker().order(image="oci:/nowhere")
        assert refused.value.status == 400
        await fleet.broker().order(name="web")
        with pytest.raises(HawkerError, match="'web' is taken"):
            await fleet.broker().order(name="web")
        assert len(fleet.made()) == 1


async def test_keys_that_look_like_moved_ones_are_keys_of_their_own(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        fleet.lose("fill", Loss.REFUSED)
        first = await fleet.broker().order(key="k")
        assert (await fleet.broker().order(key="k~1")).id != first.id
        assert (await fleet.broker().order(key="k@00000001")).id != first.id
        assert len(fleet.made()) == 3


async def _all(fleet: Fleet, brokers: list[Broker], key: str | None = None) -> list[Machine | HawkerError]:
    found: list[Machine | HawkerError] = []

    async def one(broker: Broker) -> None:
        try:
            found.append(await broker.order(key=key))
        except HawkerError as error:
            found.append(error)

    async with anyio.create_task_group() as tasks:
        for broker in brokers:
            tasks.start_soon(one, broker)
    return found


async def test_a_replay_finds_its_machine_at_the_node_that_it_moved_to(tmp_path: Path) -> None:
    async with fleet_at(tmp_path, 2) as fleet:
        made = await fleet.broker().order(key="mine")
        await fleet.at_rest()
        source = next(host for host in fleet.hosts.values() if host.made())
        target = next(host for host in fleet.hosts.values() if host is not source)
        assert source.worker is not None and target.worker is not None
        await fleet.knows(target)
        (record,) = source.made()
        went = MovedRecord(app=record.app, to=target.id, generation=2, at=0.0)
        from_table, to_table = source.worker.parts.deps.table, target.worker.parts.deps.table
        versions = from_table.versions(source.worker.store, record.id)

        def leave(tx: Tx) -> None:
            from_table.leave(tx, record)
            tx.put(MOVED, record.id, went)

        await source.worker.store.write(leave)
        await target.worker.store.write(lambda tx: to_table.enter(tx, record, versions, ()))
        assert (await fleet.broker().order(key="mine")).id == made.id
        fleet.lose("quote", Loss.REFUSED, node=target)  # nobody says before the order that it was filled
        assert (await fleet.broker().order(key="mine")).id == made.id
        assert [each.id for each in fleet.made()] == [made.id]

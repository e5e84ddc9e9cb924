"""Who looks after a deploy whose coordinator is gone, and what is forgotten."""

from functools import partial
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from hawker.deploys import takeover
from hawker.deploys.takeover import DeployWatch
from hawker.deploys.voters import TermLost
from hawker.errors import Conflict, NotFound, WrongState
from hawker.fsm import journal
from hawker.record.app import APPS, RELEASES
from hawker.record.deploy import (
    DEPLOY_REGISTERS,
    DEPLOY_TERMS,
    DEPLOYS,
    DeployTermRecord,
    RegisterRecord,
    deploy_key,
    deploy_resource,
)
from hawker.record.machine import MACHINES
from hawker.sim.deploys.deploy_host import DeployHost
from hawker.sim.deploys.deploy_plan import DeployBlow
from hawker.sim.node.sim_worker import APP
from hawker.store.contract import Tx
from tests.sim.deploys.fleets import BAD, PlayedDeploys, played_deploys
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_one_voter_takes_over_and_no_other_node() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        await fleet.home.kill()
        home, *others = fleet.voters()
        await fleet.eventually(lambda: any(_leads(fleet, host) for host in others))
        assert sum(_leads(fleet, host) for host in others) == 1
        assert [host for host in fleet.hosts if fleet.record(host)] == [home, *(h for h in others if _leads(fleet, h))]
        await fleet.again(home)
        assert await fleet.settled() == []


def _leads(fleet: PlayedDeploys, host: DeployHost) -> bool:
    record = fleet.record(host)
    return record is not None and record.coordinator == host.id


def _put_first(register: RegisterRecord, tx: Tx) -> None:
    app = tx.get(APPS, register.app)
    assert app is not None
    tx.put(DEPLOY_REGISTERS, f"{app.id}/0", register)


def _has_ended(fleet: PlayedDeploys, host: DeployHost) -> bool:
    record = fleet.record(host)
    return record is not None and record.ended_at is not None


@pytest.mark.parametrize("error", [Conflict("a run is under way"), TermLost(), None])
async def test_a_deploy_that_cannot_be_looked_at_keeps_no_voter_from_another_one(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which comes after it; and no daemon ends by it. None: the look never ends."""
    begin, tries = DeployWatch._begin, list[str]()

    async def fails(watch: DeployWatch, key: str, register: RegisterRecord) -> None:
        if not key.endswith("/0"):
            await begin(watch, key, register)
            return
        tries.append(key)
        if error is None:
            await anyio.sleep_forever()
        else:
            raise error

    monkeypatch.setattr(DeployWatch, "_begin", fails)
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        home, *others = fleet.voters()
        for host in others:
            register = fleet.register(host)
            assert register is not None
            await host.world.store.write(partial(_put_first, register))
        await home.kill()
        await fleet.eventually(lambda: any(_leads(fleet, host) for host in others))
        assert tries
        await fleet.eventually(lambda: any(_has_ended(fleet, host) for host in others))


@pytest.mark.long(reason="seconds of a played fleet; the simulator of deploys in `make check` kills voters, too")
async def test_a_voter_that_missed_the_end_learns_of_it() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        _, one, _ = fleet.voters()
        await one.kill()
        assert (await fleet.ended(0)).status == "complete"
        await fleet.again(one)
        register = fleet.register(one)
        assert register is not None and not register.ended
        await fleet.home.kill()
        await fleet.eventually(lambda: (found := fleet.register(one)) is not None and found.ended)
        assert fleet.record(one) is None or fleet.record(one).ended_at is not None  # type: ignore[union-attr]
        await fleet.again(fleet.home)
        assert await fleet.settled() == []


async def test_registers_of_deploys_that_ended_go_and_terms_of_apps_that_are_gone() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.ended(0)
        store = fleet.home.world.store
        (key, register), *_ = store.scan(DEPLOY_REGISTERS)
        await store.write(lambda tx: tx.put(DEPLOY_REGISTERS, key, replace(register, at=1.0)))
        await store.write(lambda tx: tx.put(DEPLOY_TERMS, "gone", DeployTermRecord(version=1, term=1)))
        await fleet.eventually(lambda: not [*store.scan(DEPLOY_REGISTERS)])
        await fleet.eventually(lambda: store.get(DEPLOY_TERMS, "gone") is None)
        assert [*store.scan(DEPLOY_TERMS)] != []


async def test_a_register_that_ended_is_not_read_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state may have a mebibyte, and it is kept for an hour."""
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.ended(0)
        await fleet.eventually(lambda: (found := fleet.register(fleet.home)) is not None and found.ended)
        await fleet.passes(30)
        store, read = fleet.home.world.store, list[str]()
        get, scan = store.get, store.scan

        def counted(do: Any, bucket: Any, *at: Any, **options: Any) -> Any:
            if bucket is DEPLOY_REGISTERS:
                read.append(do.__name__)
            return do(bucket, *at, **options)

        monkeypatch.setattr(store, "get", partial(counted, get))
        monkeypatch.setattr(store, "scan", partial(counted, scan))
        await fleet.passes(50)
        assert len(read) <= 2


async def test_voters_keep_the_end_of_a_deploy_until_each_of_them_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that was away for long finds it, and does not go on with what has ended."""
    monkeypatch.setattr(takeover, "_ENDED_S", 30.0)
    async with played_deploys() as fleet:
        await fleet.deploy(**BAD)
        await fleet.changes()
        home, *others = fleet.voters()
        await home.kill()
        other = next(host for host in fleet.hosts if host not in fleet.voters())
        ended = await fleet.ended(fleet.hosts.index(other))
        await fleet.passes(300)
        assert [fleet.register(host) is not None for host in others] == [True, True]
        await fleet.again(home)
        await fleet.eventually(lambda: (found := fleet.record(home)) is not None and found.ended_at is not None)
        record = fleet.record(home)
        assert record is not None and record.coordinator != home.id
        assert (await fleet.shown(fleet.hosts.index(home))).status == ended.status
        await fleet.eventually(lambda: not any(fleet.register(host) for host in fleet.voters()))
        assert await fleet.settled() == []


async def test_a_voter_that_missed_the_end_learns_of_it_though_its_coordinator_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(takeover, "_ENDED_S", 30.0)
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        _, one, _ = fleet.voters()
        await one.kill()
        assert (await fleet.ended(0)).status == "complete"
        await fleet.passes(300)
        await fleet.again(one)
        await fleet.eventually(lambda: not any(fleet.register(host) for host in fleet.voters()))
        assert fleet.record(one) is None


async def test_a_deploy_that_cannot_tell_its_end_for_long_is_complete_all_the_same() -> None:
    """Its voters are away when it has nothing left to do but to say so."""
    async with played_deploys() as fleet:
        await fleet.deploy()
        fleet.strikes("deploy.settle before", DeployBlow.PART)
        await fleet.eventually(lambda: fleet.is_parted)
        home, *others = fleet.voters()
        for host in others:
            await host.kill()
        await fleet.passes(900)
        record = fleet.record(home)
        assert record is not None and record.ended_at is None
        fleet.heal()
        for host in others:
            await fleet.again(host)
        assert (await fleet.ended(0)).status == "complete"
        assert await fleet.settled() == []


@pytest.mark.parametrize("heard", [True, False])
async def test_an_end_that_most_voters_have_is_heeded_where_a_deploy_ended_otherwise(heard: bool) -> None:
    """By the next daemon of a home whose run gave up, whether its own register tells of the end or not."""
    async with played_deploys() as fleet:
        await fleet.deploy()
        assert (await fleet.ended(0)).status == "complete"
        store, key = fleet.home.world.store, deploy_key(APP, 1)
        (at, register), *_ = store.scan(DEPLOY_REGISTERS)
        record, release = fleet.record(fleet.home), store.get(RELEASES, key)
        assert record is not None and release is not None

        def gave_up(tx: Tx) -> None:
            tx.put(DEPLOYS, key, replace(record, term=record.term - 1, error="gave up"))
            tx.put(RELEASES, key, replace(release, status="failed"))
            tx.put(DEPLOY_REGISTERS, at, replace(register, ended=heard))

        await fleet.eventually(lambda: journal.active(store, deploy_resource(APP)) is None)
        await store.write(gave_up)
        await fleet.home.kill()
        await fleet.again(fleet.home)
        await fleet.eventually(lambda: fleet.home.world.store.get(RELEASES, key) == release)
        ended = fleet.register(fleet.home)
        assert fleet.record(fleet.home) == record and ended is not None and ended.ended


async def _comes_again(host: DeployHost, *, ended: bool) -> str:
    """The app was destroyed and made again, with another id, as this host knows it. Returns the key of what it keeps of
    the former app's deploy."""
    (key, register), *_ = host.world.store.scan(DEPLOY_REGISTERS)

    def apply(tx: Tx) -> None:
        app = tx.get(APPS, APP)
        assert app is not None
        tx.put(APPS, APP, replace(app, id="0123456789abcdef"))
        tx.put(DEPLOY_REGISTERS, key, replace(register, ended=ended))

    await host.world.store.write(apply)
    return key


@pytest.mark.parametrize("heard", [True, False])
async def test_the_end_of_a_destroyed_apps_deploy_leaves_a_later_app_of_the_name_as_it_is(heard: bool) -> None:
    """Though the former deploy had more terms."""
    async with played_deploys() as fleet:
        await fleet.deploy()
        assert (await fleet.ended(0)).status == "complete"
        store, key = fleet.home.world.store, deploy_key(APP, 1)
        await fleet.eventually(lambda: journal.active(store, deploy_resource(APP)) is None)
        record, release = fleet.record(fleet.home), store.get(RELEASES, key)
        assert record is not None and release is not None
        record, release = replace(record, term=record.term - 1, stage="later"), replace(release, status="failed")
        await store.write(lambda tx: tx.put(DEPLOYS, key, record))
        await store.write(lambda tx: tx.put(RELEASES, key, release))
        at = await _comes_again(fleet.home, ended=heard)
        await fleet.home.kill()
        await fleet.again(fleet.home)
        store = fleet.home.world.store
        await fleet.eventually(lambda: (found := store.get(DEPLOY_REGISTERS, at)) is not None and found.ended)
        await fleet.passes(5)
        assert (fleet.record(fleet.home), store.get(RELEASES, key)) == (record, release)


async def test_nobody_takes_over_a_destroyed_apps_deploy_where_a_later_app_has_its_name() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        home, *others = fleet.voters()
        for host in others:
            await _comes_again(host, ended=False)
        await home.kill()
        await fleet.passes(60)
        assert [fleet.record(host) for host in others] == [None, None]
        with pytest.raises(NotFound, match="no node that answers keeps deploy 1"):
            await fleet.take(fleet.hosts.index(others[0]))


async def test_an_operator_takes_a_deploy_of_which_two_voters_are_lost() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        home, one, other = fleet.voters()
        await home.kill()
        await one.kill()
        at = fleet.hosts.index(other)
        await fleet.passes(10)
        shown = await fleet.take(at)
        assert shown.coordinator == other.id and set(shown.voters).isdisjoint({home.id, one.id})
        await fleet.eventually(lambda: (found := fleet.record(other)) is not None and found.ended_at is not None)
        ended = await fleet.shown(at)
        assert ended.status == "complete"
        away = {machine.id for host in (home, one) for _, machine in host.world.store.scan(MACHINES)}
        assert {slot.machine_id for slot in ended.slots if slot.state == "skipped"} <= away
        for host in (home, one):
            await fleet.again(host)
        assert await fleet.settled() == []


async def test_a_deploy_that_two_voters_keep_or_nobody_knows_is_taken_by_no_operator() -> None:
    async with played_deploys() as fleet:
        with pytest.raises(NotFound, match="no node that answers keeps deploy 1"):
            await fleet.take(0)
        await fleet.deploy()
        await fleet.changes()
        home, *_ = fleet.voters()
        with pytest.raises(WrongState, match="3 of the 3 nodes that keep deploy 1 of app 'stall' answer"):
            await fleet.take(1)
        await home.kill()
        with pytest.raises(WrongState, match="2 of the 3 nodes"):
            await fleet.take(1)
        await fleet.again(home)
        assert (await fleet.ended(1)).status == "complete"
        with pytest.raises(WrongState, match="has ended"):
            await fleet.take(1)


@pytest.mark.long(reason="seconds of a played fleet; an operator who takes one is the short form")
async def test_the_home_alone_goes_on_when_its_operator_says_so() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        home = fleet.home
        for host in fleet.hosts:
            if host is not home:
                await host.kill()
        await fleet.passes(10)
        shown = await fleet.take(fleet.hosts.index(home))
        assert shown.voters == (home.id,) and shown.coordinator == home.id
        await fleet.eventually(lambda: (found := fleet.record(home)) is not None and found.ended_at is not None)
        for host in fleet.hosts:
            await fleet.again(host)
        assert await fleet.settled() == []

"""A node that comes back: after an hour, after it was forgotten, with an older disk, with a wrong clock. Three real
nodes; each scene leaves them together, so that they do for the next.
"""

import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator

import pytest

from hawker.api.client import Client
from hawker.api.contract.app import DELETE_APP, AppParams, DeleteAppQuery
from hawker.api.contract.machine_operation import CREATE_LEASE, RELEASE_LEASE, LeaseRequest
from hawker.api.contract.node import LIST_FINDINGS
from hawker.errors import LeaseHeld, NotFound, Unauthorized, Unavailable
from hawker.log import Secret
from tests.e2e.returning import (
    DAY_S,
    HOUR_S,
    Trio,
    epochs,
    everybody_lists,
    logged,
    order_at,
    other_keys,
    rows,
    set_clock,
    trio,
)
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, the_node
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
MORE = pytest.mark.long(
    reason="each scene waits for three nodes to miss one; in test_agent_fleet.py one comes back, too"
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with trio(tmp_path_factory.mktemp("trio")) as fleet:
        yield fleet


@MORE
async def test_after_an_hour_it_has_what_is_its_own_and_nothing_that_was_ended(fleet: Trio) -> None:
    await fleet.together()
    third = fleet.third
    async with fleet.first.node.client() as one, fleet.second.node.client() as two:
        shop, old = await Shop(one, "hour").open(), await Shop(one, "gone").open()
        ended = await order_at(shop, 0)
        kept, watched = await order_at(shop, 2, "echo $$; exec sleep 600"), await order_at(shop, 2)
        spare = await order_at(shop, 1, standbys=[watched.id], skip_launch=True)
        await order_at(old, 1)
        await shop.logged(kept.id, "\n")
        pid = int(await shop.logs(kept.id))
        await fleet.together()

        third.node.lose()
        await fleet.without_third()
        await eventually(lambda: _is(Shop(two, shop.app), spare.id, "started"), WITHIN_S)
        for each in fleet.hosts:
            set_clock(each, HOUR_S)
        await _destroyed(shop, ended.id)
        params, query = AppParams(app_name=old.app), DeleteAppQuery(force=True)
        await two.call(DELETE_APP, params=params, query=query)
        new = await order_at(shop, 0)
        with pytest.raises(Unavailable, match=f"node {third.node.node_id} in region mad (is down|cannot be reached)"):
            await shop.destroy(kept.id)

    third.node.start()
    await fleet.together()
    os.kill(pid, 0)
    left = {kept.id: "started", watched.id: "stopped", spare.id: "started", new.id: "started"}
    await everybody_lists(fleet, shop.app, left)
    assert not [row for row in rows(third) if ended.id in row or old.app in row]
    async with third.node.client() as three:
        more = await order_at(Shop(three, shop.app), 2)
        await everybody_lists(fleet, shop.app, left | {more.id: "started"})
        await Shop(three, shop.app).close()
    await eventually(lambda: not [row for each in fleet.hosts for row in rows(each) if shop.app in row], WITHIN_S)
    for each in fleet.hosts:
        set_clock(each, 0)


@MORE
async def test_forgotten_and_without_the_keys_it_joins_again_with_what_it_has(fleet: Trio) -> None:
    await fleet.together()
    third = fleet.third
    async with fleet.first.node.client() as one:
        shop = await Shop(one, "forgotten").open()
        here, there = await order_at(shop, 0), await order_at(shop, 2)
        over = await order_at(shop, 2, "echo $$; exec sleep 600")
        await shop.logged(over.id, "\n")
        pid = int(await shop.logs(over.id))
        await fleet.together()

        third.node.stop()
        await fleet.without_third()
        said = json.loads(fleet.hawker(fleet.first).say("node", "forget", third.node.node_id, "-o", "json"))
        assert said["node"] == third.node.node_id
        fence = said["epoch"]
        await eventually(lambda: not epochs(fleet.second, third.node.node_id).get("region", (0, 0))[0], WITHIN_S)
        assert [machine.id for machine in await shop.machines()] == [here.id]
        with pytest.raises((NotFound, Unavailable)):
            await shop.get(there.id)
        await other_keys(one)

    os.kill(pid, signal.SIGKILL)
    again = third.join(fleet.first.node)
    assert again.returncode == 0, again.stderr
    third.node.start()
    await fleet.together()
    assert logged(third, "node was forgotten", forgotten=third.node.node_id)
    for each in fleet.hosts:
        assert all(epoch > fence for epoch, _ in epochs(each, third.node.node_id).values())
    await everybody_lists(fleet, shop.app, {here.id: "started", there.id: "started", over.id: "started"})
    async with third.node.client() as three:
        await Shop(three, shop.app).close()


@MORE
@pytest.mark.timeout(1800)  # two nodes miss one, and it begins again, twice each
async def test_with_an_older_disk_it_begins_anew_and_fills_no_order_twice(fleet: Trio) -> None:
    """First its files are copied while it is stopped, and put back; then a backup is restored."""
    await fleet.together()
    third = fleet.third
    async with fleet.first.node.client() as one:
        shop = await Shop(one, "restored").open()
        kept = await order_at(shop, 2, "echo $$; exec sleep 600")
        await shop.logged(kept.id, "\n")
        pid = int(await shop.logs(kept.id))
        for way, then in ((_copied, "started"), (_backed_up, "stopped")):
            ended = await order_at(shop, 2)
            put_back = way(fleet)
            async with third.node.client() as three:
                await eventually(lambda: _lists(three, shop.app, kept.id), WITHIN_S)
                lost = await order_at(shop, 2, key=way.__name__)
            await _destroyed(shop, ended.id)
            await fleet.together()
            before = epochs(fleet.first, third.node.node_id)
            third.node.stop()
            await fleet.without_third()
            put_back()
            third.node.start()
            await fleet.together()
            os.kill(pid, 0)
            await everybody_lists(fleet, shop.app, {kept.id: "started", ended.id: then})
            await _destroyed(shop, ended.id)
            after = epochs(fleet.first, third.node.node_id)
            assert all(after[scope] > before[scope] for scope in before), "nothing is said twice under one version"
            with pytest.raises(NotFound):
                await shop.get(lost.id)
            again = await order_at(shop, 2, key=way.__name__)
            assert again.id != lost.id
            assert (await order_at(shop, 2, key=way.__name__)).id == again.id
            await everybody_lists(fleet, shop.app, {kept.id: "started", again.id: "started"})
            await _destroyed(shop, again.id)
        await shop.close()


def _copied(fleet: Trio) -> Callable[[], None]:
    """Store and catalog as they are in the files of the stopped node."""
    node = fleet.third.node
    node.stop()
    copy = node.directory / "copy"
    copy.mkdir()
    for file in (*node.data_dir.glob("hawker.db*"), *node.data_dir.glob("catalog.db*")):
        shutil.copy2(file, copy)
    node.start()

    def put_back() -> None:
        for file in (*node.data_dir.glob("hawker.db*"), *node.data_dir.glob("catalog.db*")):
            file.unlink()
        for file in copy.iterdir():
            shutil.copy2(file, node.data_dir)

    return put_back


def _backed_up(fleet: Trio) -> Callable[[], None]:
    hawker = fleet.hawker(fleet.third)
    file = str(fleet.third.node.directory / "node.db")
    hawker.say("node", "backup", file)

    def put_back() -> None:
        hawker.say("node", "restore", file)

    return put_back


@MORE
async def test_with_a_wrong_clock_it_goes_on_and_everybody_is_told(fleet: Trio) -> None:
    """A day ahead and a day behind, set while it runs, and when it begins."""
    await fleet.together()
    third = fleet.third
    narrow = fleet.hawker(fleet.first).say("tokens", "create", "--app", "clock", "--actions", "r", "--expires", "1h")
    async with fleet.clients() as (one, _, three):
        shop = await Shop(one, "clock").open()
        machine = await order_at(shop, 2)
        before = epochs(fleet.first, third.node.node_id)
        lease = await one.call(CREATE_LEASE, params=shop.params(machine.id), body=LeaseRequest(ttl=600))
        set_clock(third, DAY_S)
        await eventually(lambda: _ahead(one, third.node.node_id, DAY_S), WITHIN_S)
        late = await order_at(shop, 2)
        assert late.created_at > machine.created_at
        await shop.stop(machine.id)  # its host's clock says that the lease is over
        await shop.wait(machine.id, "stopped")
        async with Client(third.node.url, Secret(narrow.strip())) as narrowed:
            with pytest.raises(Unauthorized, match="expired"):
                await Shop(narrowed, "clock").machines()

        set_clock(third, -DAY_S)
        await eventually(lambda: _ahead(one, third.node.node_id, -DAY_S), WITHIN_S)
        with pytest.raises(LeaseHeld, match="expires at"):
            await shop.start(machine.id)
        await one.call(RELEASE_LEASE, params=shop.params(machine.id), nonce=lease.nonce)
        await shop.start(machine.id)
        await shop.wait(machine.id, "started")
        behind = await order_at(Shop(three, "clock"), 2)
        for client, against in ((one, "that of most nodes"), (three, "those of most other nodes")):
            await eventually(lambda: _told(client, third.node.node_id, against), WITHIN_S)  # noqa: B023

    third.node.stop()
    refused = third.join(fleet.first.node)
    assert refused.returncode == 2 and re.search(r"this host's clock is 8\d{4} s behind that of", refused.stderr)
    third.node.start()
    await fleet.together()
    after = epochs(fleet.first, third.node.node_id)
    assert {scope: epoch for scope, (epoch, _) in after.items()} == {
        scope: epoch for scope, (epoch, _) in before.items()
    }
    await everybody_lists(fleet, "clock", {machine.id: "started", late.id: "started", behind.id: "started"})
    set_clock(third, 0)
    async with fleet.first.node.client() as one:
        await eventually(lambda: _ahead(one, third.node.node_id, 0), WITHIN_S)
        await Shop(one, "clock").close()


async def _destroyed(shop: Shop, machine_id: str) -> None:
    await shop.destroy(machine_id)
    await shop.gone(machine_id)


async def _is(shop: Shop, machine_id: str, state: str) -> bool:
    return (await shop.get(machine_id)).state == state


async def _ahead(client: Client, node_id: str, wanted_s: float) -> bool:
    found = (await the_node(client, node_id)).clock_ahead_s
    return found is not None and abs(found - wanted_s) < HOUR_S


async def _told(client: Client, node_id: str, against: str) -> bool:
    """Whether its doctor knows whose clock is wrong."""
    findings = (await client.call(LIST_FINDINGS)).findings
    wrong = {each.about: each.detail for each in findings if each.kind == "wrong clock"}
    return (
        wrong.keys() == {node_id}
        and re.fullmatch(rf"its clock is 8\d{{4}} s behind {against}", wrong[node_id]) is not None
    )


async def _lists(client: Client, app: str, machine_id: str) -> bool:
    return machine_id in {machine.id for machine in await Shop(client, app).machines()}

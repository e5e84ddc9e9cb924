"""Lists of several nodes as one: however it is paged, it is the whole list."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import LIST_MACHINES, ListMachinesQuery, Machine
from hawker.api.contract.org import LIST_ORG_MACHINES, OrgMachinesQuery, OrgParams
from hawker.api.contract.run import LIST_RUNS, ListRunsQuery
from hawker.api.contract.volume import LIST_ORG_VOLUMES, LIST_VOLUMES, ListVolumesQuery
from hawker.api.directory import KnownMachine, KnownVolume, Node
from hawker.errors import BadRequest, NotFound, Unavailable
from hawker.gateway.lists import PagePart, Whole, machine_of, merged, selects, volume_of
from hawker.ids import MachineId, NodeId
from hawker.machine import State
from hawker.permission import Attempt
from hawker.record.volume import VOLUMES
from tests.gateway.town import APP, FAR, HERE, SHOP, Broker, Town, town_of
from tests.worker.hourglass import in_virtual_time

HOST = Node(id=NodeId("0000000a"), region="mad", alive=False, labels={})


def row(state: str = "started") -> KnownMachine:
    return KnownMachine(
        id="m1",
        name="web",
        state=state,
        version="v1",
        image="sha256:1",
        private_ip="fd00::1",
        cordoned=False,
        metadata={"tier": "front"},
        created_at=1.0,
        updated_at=2.0,
    )


def test_a_machine_is_unreachable_and_its_host_named() -> None:
    machine = machine_of(row(), HOST)
    assert machine is not None
    shown = msgspec.to_builtins(machine)
    assert (shown["state"], shown["host_status"], shown["host"], shown["region"]) == (
        "started",
        "unreachable",
        HOST.id,
        "mad",
    )
    assert "config" not in shown


def test_a_state_of_another_version_is_not_shown() -> None:
    assert machine_of(row("levitating"), HOST) is None


@pytest.mark.parametrize(
    ("query", "selected"),
    [
        (ListMachinesQuery(), True),
        (ListMachinesQuery(state=(State.STARTED,), metadata={"tier": "front"}), True),
        (ListMachinesQuery(state=(State.STOPPED,)), False),
        (ListMachinesQuery(metadata={"tier": "back"}), False),
    ],
)
def test_rows_are_selected_as_a_worker_selects_its_own(query: ListMachinesQuery, selected: bool) -> None:
    assert selects(query)(row()) is selected


def test_a_volume_names_its_host_as_its_zone() -> None:
    free = volume_of(KnownVolume(id="vol_1", name="data", state="created", size_gb=3, machine=""), HOST)
    assert (free.host_status, free.zone, free.attached_machine_id) == ("unreachable", HOST.id, None)


KEYS = st.text("abc", min_size=1, max_size=3)


def key(item: str) -> str:
    return item


def page_at(node: set[str], after: str | None, limit: int, *, newest_first: bool) -> PagePart[str]:
    """What a node answers."""
    beyond = [
        item
        for item in sorted(node, reverse=newest_first)
        if after is None or (item < after if newest_first else item > after)
    ]
    shown = beyond[:limit]
    return PagePart(items=shown, upto=shown[-1] if len(beyond) > limit else None)


def pages(nodes: list[set[str]], limit: int, most: list[int], *, newest_first: bool) -> list[Whole[str]]:
    """Every page, each node showing no more than its `most` at once."""
    after, found = None, list[Whole[str]]()
    while True:
        parts = [
            page_at(node, after, min(limit, at_most), newest_first=newest_first)
            for node, at_most in zip(nodes, most, strict=True)
        ]
        found.append(merged(parts, key, limit, newest_first=newest_first))
        if found[-1].upto is None:
            return found
        assert after is None or (found[-1].upto < after if newest_first else found[-1].upto > after)
        after = found[-1].upto


@given(st.lists(st.tuples(st.sets(KEYS), st.integers(1, 4)), max_size=5), st.integers(1, 5), st.booleans())
def test_all_pages_together_are_the_whole_list(
    nodes: list[tuple[set[str], int]], limit: int, newest_first: bool
) -> None:
    found = pages([node for node, _ in nodes], limit, [most for _, most in nodes], newest_first=newest_first)
    items = [item for page in found for item in page.items]
    assert items == sorted({item for node, _ in nodes for item in node}, reverse=newest_first)
    assert all(len(page.items) <= limit for page in found)


def test_of_two_with_one_key_the_better_counts() -> None:
    parts = [PagePart(items=["a1", "b1"]), PagePart(items=["a2"])]
    assert merged(parts, lambda item: item[0], None, better=max).items == ("a2", "b1")


@pytest.mark.parametrize("limit", [None, 1])
def test_no_parts_are_an_empty_list(limit: int | None) -> None:
    assert merged(list[PagePart[str]](), key, limit) == Whole(items=())


def test_a_page_that_was_emptied_by_a_filter_still_goes_on() -> None:
    assert merged([PagePart(items=[], upto="m"), PagePart(items=["n"])], key, 5) == Whole(items=(), upto="m")


pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

HOME = OrgParams(org_slug="personal")


class Only:
    """The grant of a token for some apps."""

    name = "ann"
    token_ids = ()
    root = False

    def __init__(self, *apps: str) -> None:
        self._apps = apps

    def check(self, attempt: Attempt) -> None:
        assert self.permits(attempt)

    def permits(self, attempt: Attempt) -> bool:
        return attempt.app in self._apps


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    """Five machines: three far, two here; two volumes here."""
    async with town_of(tmp_path) as town:
        api = first(town).api
        await api.app()
        for region in (FAR, HERE, FAR, HERE, FAR):
            await api.machine(region=region)
        await api.volume()
        await api.volume(name="more")
        yield town


def first(town: Town, grant: Only | None = None) -> Broker:
    return Broker(town, next(iter(town.hosts.values())), grant=grant)


def everything(town: Town) -> list[str]:
    return sorted(record.id for host in town.hosts.values() for record in host.worker.machines())


async def paged(town: Town, limit: int) -> list[str]:
    api, found, cursor = first(town).api, list[str](), None
    while True:
        page = await api.call(LIST_MACHINES, params=SHOP, query=ListMachinesQuery(limit=limit, cursor=cursor))
        assert len(page.items) <= limit
        found += [machine.id for machine in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_machines_of_all_nodes_are_one_list(town: Town) -> None:
    api = first(town).api
    page = await api.call(LIST_MACHINES, params=SHOP)
    assert [machine.id for machine in page.items] == everything(town) and len(page.items) == 5
    assert page.next_cursor is None and not api.metadata.missing_regions


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
async def test_its_pages_are_the_whole_list(town: Town, limit: int) -> None:
    assert await paged(town, limit) == everything(town)


async def test_a_region_is_asked_alone(town: Town) -> None:
    for host in town.hosts.values():
        host.calls.clear()
    page = await first(town).api.call(LIST_MACHINES, params=SHOP, query=ListMachinesQuery(region=FAR))
    assert len(page.items) == 3 and {machine.region for machine in page.items} == {FAR}
    assert [host.region for host in town.hosts.values() if host.calls] == [FAR]


@pytest.mark.parametrize("how", ["cut", "down"])
async def test_the_rest_is_answered_and_the_region_named(town: Town, how: str) -> None:
    setattr(town.hosts[NodeId(f"{3:08x}")], how, True)
    api = first(town).api
    page = await api.call(LIST_MACHINES, params=SHOP)
    assert {machine.region for machine in page.items} == {HERE} and len(page.items) == 2
    assert tuple(api.metadata.missing_regions) == (FAR,)
    whole = await api.call(LIST_ORG_MACHINES, params=HOME)
    assert (len(whole.machines), whole.error_regions) == (2, (FAR,))


@pytest.mark.parametrize("how", ["cut", "down"])
@pytest.mark.parametrize("limit", [None, 1, 2])
async def test_a_machine_on_a_silent_host_of_the_region_stays_in_the_list(
    town: Town, how: str, limit: int | None
) -> None:
    owner = next(host for host in town.hosts.values() if host.region == HERE and host.worker.machines())
    api = Broker(town, next(host for host in town.hosts.values() if host is not owner)).api
    whole = everything(town)
    setattr(owner, how, True)
    found, cursor = list[Machine](), None
    while True:
        page = await api.call(LIST_MACHINES, params=SHOP, query=ListMachinesQuery(limit=limit, cursor=cursor))
        assert tuple(api.metadata.missing_nodes) == (owner.id,)
        found, cursor = [*found, *page.items], page.next_cursor
        if cursor is None:
            break
    assert [machine.id for machine in found] == whole
    lost = {record.id for record in owner.worker.machines()}
    where = {record.id: host.id for host in town.hosts.values() for record in host.worker.machines()}
    assert {machine.id: (machine.host_status, machine.host) for machine in found} == {
        id_: ("unreachable", owner.id) if id_ in lost else ("ok", where[MachineId(id_)]) for id_ in whole
    }
    none = await api.call(LIST_MACHINES, params=SHOP, query=ListMachinesQuery(metadata={"no": "such"}))
    assert none.items == ()


async def test_a_volume_on_a_silent_host_stays_in_the_list(town: Town) -> None:
    owner = next(host for host in town.hosts.values() if list(host.worker.store.scan(VOLUMES)))
    api = Broker(town, next(host for host in town.hosts.values() if host is not owner)).api
    whole = (await api.call(LIST_VOLUMES, params=SHOP)).items
    owner.down = True
    found = (await api.call(LIST_VOLUMES, params=SHOP)).items
    assert [volume.id for volume in found] == [volume.id for volume in whole]
    assert {(volume.zone, volume.host_status) for volume in found if volume.host_status != "ok"} == {
        (owner.id, "unreachable")
    }


async def test_nobody_who_answers_is_an_error(town: Town) -> None:
    for host in town.hosts.values():
        host.cut = True
    with pytest.raises(Unavailable, match="cannot be reached"):
        await Broker(town, next(iter(town.hosts.values())), apart=True).api.call(LIST_MACHINES, params=SHOP)


async def test_an_app_that_nobody_knows_is_not_found(town: Town) -> None:
    with pytest.raises(NotFound):
        await first(town).api.call(LIST_MACHINES, params=AppParams(app_name="nobody"))


@pytest.mark.parametrize("cursor", ["!", "gA==", "ÿ" * 10])
async def test_a_hostile_cursor_is_refused_before_anybody_is_asked(town: Town, cursor: str) -> None:
    for host in town.hosts.values():
        host.calls.clear()
    api = first(town).api
    with pytest.raises(BadRequest):
        await api.call(LIST_MACHINES, params=SHOP, query=ListMachinesQuery(cursor=cursor))
    with pytest.raises(BadRequest):
        await api.call(LIST_ORG_MACHINES, params=HOME, query=OrgMachinesQuery(cursor=cursor))
    assert not any(host.calls for host in town.hosts.values())


async def test_a_cursor_beyond_the_end_is_an_empty_page(town: Town) -> None:
    page = await first(town).api.call(LIST_MACHINES, params=SHOP, query=ListMachinesQuery(cursor="enp6", limit=3))
    assert page.items == () and page.next_cursor is None


async def test_one_machine_that_two_nodes_show_is_shown_once(town: Town) -> None:
    here = town.hosts[NodeId(f"{3:08x}")]
    record = here.worker.machines()[0]
    page = await first(town).api.call(LIST_MACHINES, params=SHOP)
    town.moved[record.id] = here.id
    again = await first(town).api.call(LIST_MACHINES, params=SHOP)
    assert [machine.id for machine in page.items] == [machine.id for machine in again.items]


async def test_a_list_over_an_org_shows_what_the_token_may_see(town: Town) -> None:
    root = first(town).api
    await root.call(CREATE_APP, body=CreateAppRequest(name="other"))
    await root.machine("other")
    seen = await first(town, Only(APP)).api.call(LIST_ORG_MACHINES, params=HOME)
    assert {machine.app_name for machine in seen.machines} == {APP} and len(seen.machines) == 5
    assert len((await root.call(LIST_ORG_MACHINES, params=HOME)).machines) == 6
    assert not (await first(town, Only()).api.call(LIST_ORG_MACHINES, params=HOME)).machines


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_machines_the_token_may_not_see_leave_no_holes_in_pages(town: Town, limit: int) -> None:
    root, api = first(town).api, first(town, Only("other")).api
    await root.call(CREATE_APP, body=CreateAppRequest(name="other"))
    wanted = sorted([(await root.machine("other")).id for _ in range(3)])
    found, cursor = list[str](), ""
    while True:
        page = await api.call(LIST_ORG_MACHINES, params=HOME, query=OrgMachinesQuery(limit=limit, cursor=cursor))
        found += [machine.id for machine in page.machines]
        assert len(page.machines) == limit or not page.next_cursor
        cursor = page.next_cursor
        if not cursor:
            break
    assert found == wanted


async def test_volumes_are_listed_by_app_and_by_org(town: Town) -> None:
    api = first(town).api
    page = await api.call(LIST_VOLUMES, params=SHOP, query=ListVolumesQuery(limit=1))
    more = await api.call(LIST_VOLUMES, params=SHOP, query=ListVolumesQuery(limit=5, cursor=page.next_cursor))
    whole = await api.call(LIST_ORG_VOLUMES, params=HOME)
    assert [volume.id for volume in (*page.items, *more.items)] == [volume.id for volume in whole.volumes]
    assert whole.last_volume_id == whole.volumes[-1].id and len(whole.volumes) == 2


async def test_runs_are_newest_first_over_all_nodes(town: Town) -> None:
    api, found, cursor = first(town).api, list[str](), None
    while True:
        page = await api.call(LIST_RUNS, query=ListRunsQuery(limit=2, cursor=cursor))
        found += [run.id for run in page.runs]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == sorted(found, reverse=True) and len(set(found)) == len(found) >= 7


async def test_runs_of_one_machine_are_asked_of_its_owner(town: Town) -> None:
    (record, *_) = next(iter(town.hosts.values())).worker.machines() or town.hosts[NodeId(f"{2:08x}")].worker.machines()
    for host in town.hosts.values():
        host.calls.clear()
    page = await first(town).api.call(LIST_RUNS, query=ListRunsQuery(resource_id=record.id))
    assert {run.resource_id for run in page.runs} == {record.id}
    assert len([host for host in town.hosts.values() if host.calls]) == 1

"""Where volumes of a fleet are made."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.api.contract.volume import CREATE_SNAPSHOT, DELETE_VOLUME, LIST_SNAPSHOTS, Volume
from hawker.errors import Forbidden, HawkerError, NotFound, Unprocessable
from hawker.gateway import volumes
from hawker.permission import Action, Attempt
from hawker.record.node import NODE, NodeRecord
from tests.gateway.town import FAR, HERE, Broker, Town, of_volume, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


class Blind:
    """The grant of a token that may do everything but read this app."""

    name = "bob"
    token_ids = ()

    def check(self, attempt: Attempt) -> None:
        if attempt.action is Action.READ:
            raise Forbidden("not for you")

    def permits(self, attempt: Attempt) -> bool:
        return attempt.action is not Action.READ


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path, HERE, HERE, FAR) as town:
        await first(town).api.app()
        yield town


def first(town: Town, **kind: object) -> Broker:
    return Broker(town, next(iter(town.hosts.values())), **kind)  # type: ignore[arg-type]


async def snapshot_of(town: Town, volume: Volume) -> str:
    api = first(town).api
    await api.call(CREATE_SNAPSHOT, params=of_volume(volume.id))
    clock = next(iter(town.hosts.values())).worker.parts.deps.clock
    while True:
        (found,) = await api.call(LIST_SNAPSHOTS, params=of_volume(volume.id))
        if found.status == "created":
            return str(found.id)
        await clock.sleep(1)


async def test_volumes_of_one_name_come_to_lie_apart(town: Town) -> None:
    api = first(town).api
    assert {(await api.volume()).zone for _ in range(2)} == {
        host.id for host in town.hosts.values() if host.region == HERE
    }


@pytest.mark.parametrize("region", [FAR, HERE, f"{FAR},{HERE}"])
async def test_a_volume_is_made_where_it_is_asked_for(town: Town, region: str) -> None:
    assert (await first(town).api.volume(region=region)).region in region


async def test_a_node_that_cannot_be_reached_is_passed_over(town: Town) -> None:
    for host in town.hosts.values():
        host.cut = host.region == HERE and host.id != "00000001"
    for _ in range(3):
        assert (await first(town).api.volume()).zone == "00000001"


async def test_a_node_that_was_cordoned_a_moment_ago_is_passed_over(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volumes, "_open", lambda node: node.alive)  # the broker has not heard of it
    cordoned, *_, left = [host for host in town.hosts.values() if host.region == HERE]
    store = cordoned.worker.store
    node = NodeRecord(id=cordoned.id, region=HERE, created_at=0.0, cordoned=True)
    await store.write(lambda tx: tx.put(NODE, "self", node))
    assert [(await first(town).api.volume()).zone for _ in range(2)] == [left.id, left.id]


async def test_nowhere_is_said_with_where_there_are_nodes(town: Town) -> None:
    with pytest.raises(Unprocessable, match=f"there are {FAR}, {HERE}"):
        await first(town).api.volume(region="nrt")


async def test_an_app_that_nobody_knows_has_no_volumes(town: Town) -> None:
    for host in town.hosts.values():
        await host.worker.parts.apps.delete("shop", force=True) if host.id == "00000001" else None
    with pytest.raises(HawkerError) as caught:
        await first(town).api.volume()
    assert isinstance(caught.value, NotFound)


@pytest.mark.parametrize("region", [FAR, HERE])
async def test_a_fork_and_a_restore_are_made_beside_their_origin(town: Town, region: str) -> None:
    api = first(town).api
    volume = await api.volume(region=region)
    fork = await api.volume(name="fork", region=region, source_volume_id=volume.id)
    restored = await api.volume(name="old", region=region, snapshot_id=await snapshot_of(town, volume))
    assert volume.zone == fork.zone == restored.zone


async def test_an_origin_is_only_for_who_may_read_it(town: Town) -> None:
    volume = await first(town).api.volume(region=FAR)
    with pytest.raises(Forbidden):
        await first(town, grant=Blind(), apart=True).api.volume(name="fork", source_volume_id=volume.id)
    for hostile in ({"source_volume_id": "vol_0000000000000000"}, {"snapshot_id": "vs_x"}):
        with pytest.raises(NotFound):
            await first(town).api.volume(name="fork", **hostile)
    with pytest.raises(Unprocessable):
        await first(town).api.volume(name="fork", snapshot_id="vs_x", source_volume_id=volume.id)


async def test_a_backup_is_only_for_who_may_read_its_app(town: Town) -> None:
    with pytest.raises(Forbidden):
        await first(town, grant=Blind(), apart=True).api.volume(backup="vol_a/20261123T161500Z-aaaa")


async def test_volumes_that_want_a_zone_of_their_own_lie_apart_whatever_is_free(town: Town) -> None:
    """The fuller host has none of the name: it is where the next one goes."""
    api = first(town).api
    full = await api.volume(name="other", size_gb=50)
    there = {(await api.volume(require_unique_zone=True)).zone for _ in range(2)}
    assert there == {host.id for host in town.hosts.values() if host.region == HERE} and full.zone in there
    assert (await api.volume(require_unique_zone=True)).zone in there


async def test_volumes_apart_from_all_of_their_app_count_each_name(town: Town) -> None:
    api = first(town).api
    other = await api.volume(name="other")
    apart = await api.volume(name="data", require_unique_zone=True, unique_zone_app_wide=True)
    assert apart.zone != other.zone


async def test_a_volume_on_its_way_out_keeps_no_zone_from_others(town: Town) -> None:
    api = first(town).api
    gone = await api.volume(size_gb=1)
    await api.call(DELETE_VOLUME, params=of_volume(gone.id))
    await api.volume(name="weight", size_gb=50, require_unique_zone=True, unique_zone_app_wide=True)
    kept = {(await api.volume(require_unique_zone=True)).zone for _ in range(2)}
    assert gone.zone in kept and len(kept) == 2

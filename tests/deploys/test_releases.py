"""Releases on a whole worker, whose time is simulated."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from hawker.api.contract.app import DELETE_APP, AppParams
from hawker.api.contract.release import LIST_RELEASES, ListReleasesQuery
from hawker.deploys.releases import (
    KEPT_RELEASES,
    MAX_DEFINITION_BYTES,
    ReleaseTable,
    added,
    check_free,
    has_complete,
    next_version,
    unfinished,
)
from hawker.errors import Conflict, NotFound, Unprocessable
from hawker.record.app import RELEASES, ReleaseRecord
from hawker.record.deploy import deploy_key
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.store.contract import Tx

pytestmark = pytest.mark.anyio


def table(worker: SimWorker) -> ReleaseTable:
    return ReleaseTable(worker.store, worker.parts.deps.clock)


async def add(worker: SimWorker, app: str = APP, *, definition: bytes = b"", image: str = "") -> ReleaseRecord:
    return await table(worker).add(
        app, image=image, strategy="rolling", description="", definition=definition, user="ann"
    )


async def test_releases_count_from_one_and_are_listed_newest_first(worker: SimWorker) -> None:
    assert [(await add(worker)).version for _ in range(3)] == [1, 2, 3]
    listed = await worker.api.call(LIST_RELEASES, params=AppParams(app_name=APP), query=ListReleasesQuery(limit=2))
    assert [(each.id, each.status) for each in listed.releases] == [(f"{APP}.3", "pending"), (f"{APP}.2", "pending")]


async def test_the_oldest_releases_go_but_for_the_last_two_that_are_complete(worker: SimWorker) -> None:
    for number in range(1, 5):
        await add(worker)
        await table(worker).move(APP, number, "complete" if number < 4 else "failed")
    for _ in range(KEPT_RELEASES):
        await add(worker)
    there = [each.version for each in table(worker).list(APP)]
    assert there == [*range(KEPT_RELEASES + 4, 4, -1), 3, 2]


class _Counted:
    """Reads as `inner` does, and counts the releases that are taken from scans."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.read = inner, 0

    def scan(self, *at: Any, **options: Any) -> Iterator[Any]:
        for pair in list(self.inner.scan(*at, **options)):
            self.read += 1
            yield pair

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


async def test_a_release_is_added_and_looked_for_without_reading_all_of_them(worker: SimWorker) -> None:
    """Each may have a definition of 256 KiB, and a write keeps every other one waiting."""
    for number in range(1, KEPT_RELEASES + 1):
        await add(worker)
        await table(worker).move(APP, number, "complete")
    counted, newest = _Counted(worker.store), worker.store.get(RELEASES, deploy_key(APP, KEPT_RELEASES))
    check_free(counted, APP, 0.0)
    assert next_version(counted, APP) == KEPT_RELEASES + 1 and has_complete(counted, APP)
    assert unfinished(counted, APP, {"1", "01", "x", "7"}) == frozenset()
    assert counted.read <= 4 and newest is not None

    def apply(tx: Tx) -> tuple[int, int]:
        within = _Counted(tx)
        return added(cast(Tx, within), APP, newest).version, within.read

    version, read = await worker.store.write(apply)
    assert version == KEPT_RELEASES + 1 and read <= 4
    assert [each.version for each in table(worker).list(APP)] == [*range(KEPT_RELEASES + 1, 1, -1)]


async def test_a_release_that_has_ended_stays_as_it_ended(worker: SimWorker) -> None:
    await add(worker)
    for status in ("running", "complete", "complete"):
        assert (await table(worker).move(APP, 1, status)).status == status
    with pytest.raises(Conflict, match="has ended: complete"):
        await table(worker).move(APP, 1, "failed")
    with pytest.raises(NotFound, match="has no release 2"):
        await table(worker).move(APP, 2, "running")


async def test_a_release_that_is_too_long_is_refused_and_nothing_is_kept(worker: SimWorker) -> None:
    with pytest.raises(Unprocessable, match="definition"):
        await add(worker, definition=b" " * (MAX_DEFINITION_BYTES + 1))
    with pytest.raises(Unprocessable, match="image"):
        await add(worker, image="x" * 2001)
    with pytest.raises(NotFound):
        await add(worker, "nobody")
    assert worker.store.count(RELEASES) == 0


async def test_releases_go_with_their_app_and_a_new_one_begins_anew(worker: SimWorker) -> None:
    await add(worker)
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert worker.store.count(RELEASES) == 0
    await worker.app()
    assert (await add(worker)).version == 1

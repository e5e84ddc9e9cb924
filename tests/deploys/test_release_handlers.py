"""Releases that clients record, beside those of deploys."""

from typing import Any

import pytest
from msgspec.structs import replace

from hawker.api.contract.app import AppParams
from hawker.api.contract.image import RESOLVE_IMAGE, ResolvedImage
from hawker.api.contract.release import (
    LIST_RELEASES,
    UPDATE_RELEASE,
    ListReleasesQuery,
    Release,
    ReleaseParams,
    UpdateReleaseRequest,
)
from hawker.errors import Conflict, NotFound
from hawker.record.app import RELEASES
from hawker.record.deploy import deploy_key
from hawker.sim.node.sim_worker import APP, SimWorker
from tests.deploys.deploying import HELLO, deploy, ended

pytestmark = pytest.mark.anyio


async def test_a_release_of_a_deploy_under_way_is_moved_by_nobody_else(worker: SimWorker) -> None:
    await deploy(worker)
    body = UpdateReleaseRequest(status="failed")
    with pytest.raises(Conflict, match="is a deploy under way"):
        await worker.api.call(UPDATE_RELEASE, params=ReleaseParams(app_name=APP, version="1"), body=body)
    assert (await ended(worker)).status == "complete"
    with pytest.raises(NotFound):
        await worker.api.call(UPDATE_RELEASE, params=ReleaseParams(app_name=APP, version="x"), body=body)


class Registry:
    """The node's own caller, to which every image is one of a registry, with this digest."""

    def __init__(self, worker: SimWorker, digest: str) -> None:
        self._inner: Any = worker.parts.deps.fleet.caller
        self._digest = digest
        worker.parts.deps.fleet.meet(self)

    async def call(self, route: Any, **options: Any) -> Any:
        if route is not RESOLVE_IMAGE:
            return await self._inner.call(route, **options)
        return ResolvedImage(
            reference=options["body"].reference,
            registry="registry.local",
            repository="shop",
            tag="1",
            digest=self._digest,
            size_bytes=1,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def newest(worker: SimWorker) -> Release:
    params, query = AppParams(app_name=APP), ListReleasesQuery(limit=1)
    return (await worker.api.call(LIST_RELEASES, params=params, query=query)).releases[0]


async def test_a_release_names_the_image_with_the_digest_that_its_tag_had(worker: SimWorker) -> None:
    Registry(worker, f"sha256:{1:064d}")
    await deploy(worker, image="registry.local/shop:1")
    found = await newest(worker)
    assert found.image == "registry.local/shop:1" and found.pinned == f"registry.local/shop:1@sha256:{1:064d}"


async def test_a_release_of_an_older_version_is_pinned_by_what_its_machines_got(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    record = worker.store.get(RELEASES, deploy_key(APP, 1))
    assert record is not None and record.pinned == HELLO
    await worker.store.write(lambda tx: tx.put(RELEASES, deploy_key(APP, 1), replace(record, pinned="")))
    assert (await newest(worker)).pinned == HELLO

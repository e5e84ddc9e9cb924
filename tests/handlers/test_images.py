from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.api.contract.image import (
    DELETE_LOGIN,
    HAND_BLOB,
    IMPORT_IMAGE,
    LIST_IMAGES,
    LIST_LOGINS,
    PRUNE_IMAGES,
    PULL_IMAGE,
    PUT_LOGIN,
    BlobParams,
    ImportQuery,
    LoginRequest,
    PieceQuery,
    PruneRequest,
    PullEvent,
    PullRequest,
    RegistryParams,
)
from hawker.api.contract.org import OrgParams
from hawker.api.in_process import InProcessCaller
from hawker.errors import BadRequest, Forbidden, HawkerError, NotFound, Unprocessable
from hawker.machine import State
from hawker.permission import Attempt
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.images import image_in

pytestmark = pytest.mark.anyio


async def _pull(worker: SimWorker, reference: str) -> list[PullEvent]:
    async with worker.api.stream(PULL_IMAGE, body=PullRequest(reference=reference)) as events:
        return [event async for event in events]


async def _used(worker: SimWorker) -> dict[str, int]:
    listed = await worker.api.call(LIST_IMAGES)
    return {image.digest: image.machines for image in listed.images}


async def test_a_pull_tells_its_progress_and_the_digest(worker: SimWorker) -> None:
    events = await _pull(worker, "hawker/hello")
    assert events[0].stage == "resolving" and events[-1].stage == "done"
    assert list(await _used(worker)) == [events[-1].digest]


async def test_a_pull_that_fails_says_why(worker: SimWorker) -> None:
    with pytest.raises(BadRequest):
        await _pull(worker, "oci:/no/such/directory")


async def test_images_are_listed_with_their_machines(worker: SimWorker, tmp_path: Path) -> None:
    await worker.started()
    await worker.stopped()
    other = await _pull(worker, image_in(tmp_path / "other"))
    assert sorted((await _used(worker)).values()) == [0, 2]
    assert (await _used(worker))[other[-1].digest or ""] == 0


async def test_prune_removes_what_no_machine_uses_and_nothing_else(
    worker: SimWorker, stall: MemoryWorld, tmp_path: Path
) -> None:
    running = await worker.started()
    off = await worker.stopped(image=image_in(tmp_path / "off"))
    unused = (await _pull(worker, image_in(tmp_path / "unused", content=b"unused")))[-1].digest
    answer = await worker.api.call(PRUNE_IMAGES, body=PruneRequest())
    assert answer.removed == (unused,) and answer.freed_bytes > 0 and stall.rootfs.forgotten == [unused]
    kept = {worker.record(running).image.digest, worker.record(off).image.digest}
    assert set(await _used(worker)) == kept
    await worker.start(off)
    await worker.reaches(off, State.STARTED)


async def test_prune_by_age_spares_what_was_used_since(worker: SimWorker, tmp_path: Path) -> None:
    unused = (await _pull(worker, image_in(tmp_path / "unused")))[-1].digest
    answer = await worker.api.call(PRUNE_IMAGES, body=PruneRequest(unused_for_s=60))
    assert answer.removed == ()
    await worker.parts.deps.clock.sleep(61)
    assert (await worker.api.call(PRUNE_IMAGES, body=PruneRequest(unused_for_s=60))).removed == (unused,)


async def test_prune_of_one_image_leaves_the_others(worker: SimWorker, tmp_path: Path) -> None:
    running = worker.record(await worker.started()).image.digest
    one = (await _pull(worker, image_in(tmp_path / "one", content=b"one")))[-1].digest
    other = (await _pull(worker, image_in(tmp_path / "other", content=b"other")))[-1].digest
    answer = await worker.api.call(PRUNE_IMAGES, body=PruneRequest(digests=(str(one), running)))
    assert answer.removed == (one,) and set(await _used(worker)) == {running, other}


async def test_prune_keeps_what_an_update_may_fall_back_to(
    worker: SimWorker, stall: MemoryWorld, tmp_path: Path
) -> None:
    machine_id = await worker.started()
    old = worker.record(machine_id).image.digest
    stall.hold(image := image_in(tmp_path / "new"))
    await worker.update(machine_id, image=image)
    answer = await worker.api.call(PRUNE_IMAGES, body=PruneRequest())
    assert answer.removed == () and old in await _used(worker)


async def test_an_upload_that_is_no_image_is_refused(worker: SimWorker) -> None:
    async def data() -> AsyncIterator[bytes]:
        yield b"this is no archive"

    with pytest.raises(HawkerError):
        await worker.api.upload(IMPORT_IMAGE, data(), query=ImportQuery(reference="mine"))
    assert await _used(worker) == {}


async def test_a_piece_of_a_blob_is_handed_to_another_node(worker: SimWorker) -> None:
    digest = (await _pull(worker, "hawker/hello"))[-1].digest or ""
    asked = PieceQuery(org="acme")
    whole = await worker.api.call(HAND_BLOB, params=BlobParams(digest=digest), query=asked)
    assert whole.startswith(b"{")
    query = PieceQuery(org="*", offset=3, count=5)
    assert await worker.api.call(HAND_BLOB, params=BlobParams(digest=digest), query=query) == whole[3:8]
    with pytest.raises(NotFound):
        await worker.api.call(HAND_BLOB, params=BlobParams(digest="sha256:" + "0" * 64), query=asked)
    with pytest.raises(Unprocessable):
        await worker.api.call(HAND_BLOB, params=BlobParams(digest="../../hawker.db"), query=asked)


AT = RegistryParams(org_slug="acme", registry="https://registry.example:5000/")


async def test_a_login_is_kept_listed_without_its_password_and_given_up(worker: SimWorker) -> None:
    body = LoginRequest(username="ada", password="pass word", unchecked=True)
    made = await worker.api.call(PUT_LOGIN, params=AT, body=body)
    assert (made.registry, made.username, made.by) == ("registry.example:5000", "ada", "ann")
    listed = await worker.api.call(LIST_LOGINS, params=OrgParams(org_slug="acme"))
    assert [each.registry for each in listed.logins] == ["registry.example:5000"] and "pass word" not in repr(listed)
    assert listed.logins[0].nodes == (worker.parts.node.id,)
    await worker.api.call(DELETE_LOGIN, params=AT)
    assert (await worker.api.call(LIST_LOGINS, params=OrgParams(org_slug="acme"))).logins == ()
    with pytest.raises(NotFound):
        await worker.api.call(DELETE_LOGIN, params=AT)


@pytest.mark.parametrize("registry", ["no registry", "word", "host.example/path"])
async def test_a_text_that_is_no_registry_is_refused(worker: SimWorker, registry: str) -> None:
    body = LoginRequest(username="ada", password="x", unchecked=True)
    with pytest.raises((BadRequest, Unprocessable)):
        await worker.api.call(PUT_LOGIN, params=RegistryParams(org_slug="acme", registry=registry), body=body)


class OfOrg:
    """The grant of a token for an organization."""

    name, root = "bob", False

    def check(self, attempt: Attempt) -> None:
        assert self.permits(attempt)

    def permits(self, attempt: Attempt) -> bool:
        return attempt.org == "acme"


@pytest.mark.parametrize("registry", ["127.0.0.1:9090", "https://10.0.0.7:5000/", "localhost"])
async def test_a_login_leads_nobody_but_an_operator_to_an_inside_address(worker: SimWorker, registry: str) -> None:
    narrow = InProcessCaller(worker.handlers, worker.parts.deps.clock, "bob")
    narrow._grant = OfOrg()  # type: ignore[assignment]  # of any kind
    at = RegistryParams(org_slug="acme", registry=registry)
    with pytest.raises(Forbidden, match="only a token that may write the node names a registry"):
        await narrow.call(PUT_LOGIN, params=at, body=LoginRequest(username="ada", password="x"))
    await narrow.call(PUT_LOGIN, params=at, body=LoginRequest(username="ada", password="x", unchecked=True))


async def test_a_pull_of_what_is_from_no_registry_keeps_no_login(worker: SimWorker) -> None:
    body = PullRequest(reference="hawker/hello", username="ada", password="x", org="acme")
    async with worker.api.stream(PULL_IMAGE, body=body) as events:
        assert [event async for event in events][-1].stage == "done"
    assert (await worker.api.call(LIST_LOGINS, params=OrgParams(org_slug="acme"))).logins == ()

from pathlib import Path

import msgspec
import pytest

from hawker.errors import NotFound
from hawker.ids import Digest
from hawker.image.manifest import Resolved
from hawker.machine import State
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.lifecycle.pull import image_resource
from tests.waiting import eventually
from tests.worker.images import image_in, spoil

pytestmark = pytest.mark.anyio


def test_machines_of_one_image_share_what_its_digest_and_its_source_name() -> None:
    """A digest that somebody names at a registry of his own is not what others wait for."""
    own = Resolved(reference="x", registry="", repository="x", tag="", digest=Digest("sha256:1"), size_bytes=1)
    theirs = [msgspec.structs.replace(own, registry=registry, repository="lib/x") for registry in ("r.test", "s.test")]
    assert [image_resource(image, "a").id for image in (own, *theirs)] == [
        "sha256:1",
        "sha256:1@r.test/lib/x for a",
        "sha256:1@s.test/lib/x for a",
    ]


async def test_a_pull_is_a_run_of_its_own_with_two_steps(worker: SimWorker) -> None:
    await worker.started()
    (pull,) = worker.parts.runner.list(flow="pull")
    assert [line.step for line in worker.parts.runner.history(pull.run_id)] == ["fetch", "build"]
    (create,) = worker.parts.runner.list(flow="create")
    assert pull.parent == create.run_id and create.children == (pull.run_id,)


async def test_a_cached_image_is_not_pulled_again(worker: SimWorker) -> None:
    await worker.started()
    await worker.started()
    assert len(worker.parts.runner.list(flow="pull")) == 1


async def test_a_bad_image_fails_every_machine_that_waits_for_it_and_says_why(
    worker: SimWorker, stall: MemoryWorld, tmp_path: Path
) -> None:
    pull = stall.hold(image := image_in(tmp_path / "bad"))
    machines = [await worker.create(image=image) for _ in range(2)]
    spoil(image)
    pull.set()
    for machine in machines:
        with pytest.raises(NotFound):
            await worker.wait(machine.id, "started")
        event = (await worker.get(machine.id)).events[0]
        assert event.status == "launch_failed" and event.request is None
        assert "is missing from the image" in event.error
    assert len(worker.parts.runner.list(flow="pull")) == 1, "the family of the error says that a retry is no use"


async def test_a_pull_cut_off_by_a_crash_goes_on_in_the_next_life(stall: MemoryWorld) -> None:
    pull = stall.hold()
    async with stall.open() as worker:
        await worker.app()
        machine = await worker.create()
        (begun,) = await eventually(lambda: worker.parts.runner.list(flow="pull"))
    pull.set()
    async with stall.open() as worker:
        await worker.reaches(machine.id, State.STARTED)
        (run,) = worker.parts.runner.list(flow="pull")
        assert run.run_id == begun.run_id and run.ended

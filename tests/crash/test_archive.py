"""The real daemon dies before, inside and after every step that brings a history into a bucket, each time in the middle
of what it took up from the last time. In the end the history is there, once, and the node has forgotten the machine.
"""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.api.contract.run import MACHINE_HISTORY, HistoryParams, Kept, MachineHistory
from hawker.errors import NotFound
from hawker.history.archivist import ARCHIVE
from tests.archive.s3_server import BUCKET, KEYS, S3Server, s3_server
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DIES_WITHIN_S = 90.0
PLACES = [
    f"archive.{step.name}.{place}" for step in ARCHIVE.steps for place in ("before", *step.points, "after")
]  # in the order in which a run comes by
INSIDE = [f"archive.{step.name}.{point}" for step in ARCHIVE.steps for point in step.points[:1]]
LONG = pytest.mark.long(reason="ten daemons die; one inside each step is the short form")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Real time: the node is another process."""
    return "asyncio"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@contextmanager
def archiving(place: Path, *flags: str) -> Iterator[RunningNode]:
    """A node that looks at its archive every second and keeps nothing that is in it."""
    keys = [f"{name}={value}" for name, value in KEYS.items()]
    often = ("--reconcile-every-s", "1", "--destroyed-kept-s", "0", "--driver", "process")
    with running_node(place, "--ephemeral", *often, *flags, before_it=("env", *keys)) as node:
        yield node


async def destroyed(node: RunningNode) -> str:
    async with node.client() as client:
        shop = await Shop(client, "shop").open()
        machine = await shop.run({"image": HELLO, "init": {"exec": ["/bin/sleep", "60"]}, "env": {"WORD": "kept"}})
        await shop.destroy(machine.id)
        return machine.id


async def told(node: RunningNode, machine_id: str) -> MachineHistory | None:
    async with node.client() as client:
        try:
            return await client.call(MACHINE_HISTORY, params=HistoryParams(machine_id=machine_id))
        except NotFound:
            return None


async def archived(node: RunningNode, machine_id: str) -> MachineHistory:
    """The history once only the archive has it."""

    async def found() -> MachineHistory | None:
        history = await told(node, machine_id)
        return history if history is not None and history.kept is Kept.ARCHIVE else None

    history = await eventually(found)
    assert history is not None
    return history


@pytest.mark.parametrize("places", [INSIDE, pytest.param(PLACES, marks=LONG)], ids=["inside", "everywhere"])
async def test_a_node_that_dies_at_every_step_archives_once(places: list[str], s3: S3Server, tmp_path: Path) -> None:
    with archiving(tmp_path) as node:
        machine_id = await destroyed(node)
        node.kill()
        prefix = tmp_path.name
        bucket = ("--archive", f"s3://{BUCKET}/{prefix}", "--archive-endpoint", s3.url)
        for place in places:
            node.launch(*bucket, failpoint=place)
            assert node.ended(DIES_WITHIN_S) == -signal.SIGKILL, f"before {place}"
        node.start(*bucket)
        history = await archived(node, machine_id)
        assert [run.flow for run in history.runs] == ["create", "destroy"]
        assert history.events[-1].status == "destroyed"
        assert history.versions[0].user_config.env == {"WORD": "kept"}
        keys = set(re.findall(rf"<Key>{prefix}/(.*?)</Key>", s3.objects()))
        assert keys == {"HAWKER-ARCHIVE", f"{machine_id[:2]}/{machine_id}.sqlite.zst"}
        assert os.listdir(node.place.archive) == []


async def test_a_bucket_that_is_not_there_is_told_and_loses_nothing(s3: S3Server, tmp_path: Path) -> None:
    with archiving(tmp_path, "--archive", "s3://nothere", "--archive-endpoint", s3.url) as node:
        machine_id = await destroyed(node)
        await eventually(lambda: node.errors.count("histories cannot be archived") > 2)
        assert "NoSuchBucket" in node.errors
        history = await told(node, machine_id)
        assert history is not None and history.kept is Kept.NODE and history.state == "destroyed"
        environment = {**os.environ, "HAWKER_URL": node.url, "HAWKER_TOKEN": node.token}
        done = CommandLine(environment)("machine", "history", "00000000000000")
        assert done.status == 1 and "s3://nothere is not there" in done.err


async def test_the_command_line_tells_what_a_directory_has(tmp_path: Path) -> None:
    with archiving(tmp_path, "--archive", str(tmp_path / "kept")) as node:
        machine_id = await destroyed(node)
        await archived(node, machine_id)
        environment = {**os.environ, "HAWKER_URL": node.url, "HAWKER_TOKEN": node.token}
        story = CommandLine(environment).say("machine", "history", "--runs", machine_id)
        assert "in the archive" in story and "destroy: destroyed" in story and "destroy.forget: done" in story


def test_a_directory_that_is_no_place_for_archives_is_refused_at_boot(tmp_path: Path) -> None:
    done = CommandLine(os.environ)("up", "--data-dir", str(tmp_path / "data"), "--archive", "gs://bucket")
    assert done.status == 2 and "archive is a directory or s3://BUCKET/PREFIX" in done.err
    assert not (tmp_path / "data").exists()

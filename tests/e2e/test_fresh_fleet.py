"""All is lost but the place of the backups and its key: a fresh node with an empty data directory restores from it."""

from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from tests.archive.conftest import s3
from tests.archive.s3_server import BUCKET, KEYS, S3Server
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import Shop
from tests.e2e.test_lost_host_backups import put_text, text_in
from tests.e2e.test_volumes import make

__all__ = ["s3"]

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

APP = "again"


class BackupPlace:
    """Where backups go, and what leads a node or a command there."""

    def __init__(self, url: str, passphrase: Path, s3: S3Server | None = None) -> None:
        self.url = url
        self.environ = {} if s3 is None else KEYS
        self.known = ("--passphrase-file", str(passphrase), *(() if s3 is None else ("--endpoint", s3.url)))
        service = () if s3 is None else ("--backup-endpoint", s3.url)
        self._flags = ("--backup-url", url, "--backup-passphrase-file", str(passphrase), *service)

    def node(self, below: Path) -> AbstractContextManager[RunningNode]:
        with_keys = ("env", *(f"{name}={value}" for name, value in self.environ.items()))
        return running_node(below, "--ephemeral", *self._flags, before_it=with_keys)

    async def say(self, node: RunningNode, *words: str) -> str:
        led = {"HAWKER_DATA_DIR": str(node.data_dir), **self.environ}
        line = CommandLine(node.environment | led)
        return (await anyio.to_thread.run_sync(partial(line.say, *words))).strip()


@pytest.fixture(
    params=[
        "directory",
        pytest.param("bucket", marks=pytest.mark.long(reason="the directory is the short form; tests/backup has both")),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> BackupPlace:
    passphrase = tmp_path / "passphrase"
    passphrase.write_bytes(b"correct horse battery\n")
    if request.param == "directory":
        return BackupPlace(str(tmp_path / "kept"), passphrase)
    service: S3Server = request.getfixturevalue("s3")
    return BackupPlace(f"s3://{BUCKET}/{tmp_path.name}", passphrase, service)


async def test_fresh_node_restores_from_the_place_and_its_key_alone(place: BackupPlace, tmp_path: Path) -> None:
    with place.node(tmp_path / "lost") as lost:
        async with lost.client() as client:
            shop = await Shop(client, APP).open()
            volume = await make(shop)
        disk = lost.data_dir / "volumes" / volume.id / "disk"
        await put_text(disk, tmp_path / "text")
        backup = await place.say(lost, "volumes", "backup", volume.id, "-a", APP)
    assert not await anyio.to_thread.run_sync(lost.data_dir.exists), "nothing of it is left"
    with place.node(tmp_path / "fresh") as fresh:
        contents = await place.say(fresh, "volumes", "contents", place.url, *place.known)
        assert f"tests/{APP}/{backup}" in contents
        await place.say(fresh, "apps", "create", APP, "--org", "tests")
        assert backup in await place.say(fresh, "volumes", "backups", "-a", APP)
        await place.say(fresh, "volumes", "restore", backup, "-a", APP, "--name", "data")
        [restored] = await anyio.to_thread.run_sync(lambda: list((fresh.data_dir / "volumes").glob("vol_*/disk")))
        assert await text_in(restored) == "written before the host was lost\n"


@pytest.mark.long(
    reason="two more nodes; tests/cli/commands/volumes/test_key.py has the key, the test above the fresh node"
)
async def test_lost_config_comes_back_from_the_exported_key(tmp_path: Path) -> None:
    """The place has lost it, too."""
    passphrase, kept, key = tmp_path / "passphrase", tmp_path / "kept", tmp_path / "key"
    await anyio.to_thread.run_sync(passphrase.write_bytes, b"correct horse battery\n")
    place = BackupPlace(str(kept), passphrase)
    with place.node(tmp_path / "lost") as lost:
        async with lost.client() as client:
            volume = await make(await Shop(client, APP).open())
        await put_text(lost.data_dir / "volumes" / volume.id / "disk", tmp_path / "text")
        backup = await place.say(lost, "volumes", "backup", volume.id, "-a", APP)
        await place.say(lost, "volumes", "key", "export", str(kept), str(key), *place.known)
    await anyio.to_thread.run_sync((kept / "config").unlink)
    with place.node(tmp_path / "fresh") as fresh:
        await place.say(fresh, "volumes", "key", "import", str(kept), str(key), *place.known)
        await place.say(fresh, "apps", "create", APP, "--org", "tests")
        await place.say(fresh, "volumes", "restore", backup, "-a", APP, "--name", "data")
        [restored] = await anyio.to_thread.run_sync(lambda: list((fresh.data_dir / "volumes").glob("vol_*/disk")))
        assert await text_in(restored) == "written before the host was lost\n"

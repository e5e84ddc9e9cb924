"""Boots that cannot be: one clear line that says what to do, exit status 2, and nothing half-made."""

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from hawker.host.residue import host, left
from tests.e2e.anyone import AS_NOBODY, open_to_all
from tests.e2e.running_node import HAWKER, RunningNode
from tests.e2e.shop import HELLO, Shop
from tests.waiting import wait_for


def refused(data_dir: Path, *flags: str, before_it: Sequence[str] = (), path: str | None = None) -> str:
    """The one line on stderr. What a node leaves on a host bears its directory or the id that it keeps there."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HAWKER_")}
    before = host()
    done = subprocess.run(
        [*before_it, HAWKER, "up", "--data-dir", str(data_dir), *flags],
        env=kept | ({} if path is None else {"PATH": path}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    wait_for(lambda: not left(before, data_dir))
    return line


def free_port() -> tuple[socket.socket, str]:
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.root
def test_a_second_node_on_the_same_directory(node: RunningNode) -> None:
    line = refused(node.data_dir, "--listen", "127.0.0.1:0")
    assert str(node.data_dir) in line
    assert "another" in line or "in use" in line
    anyio.run(_is_well, node)


async def _is_well(node: RunningNode) -> None:
    async with node.client() as client:
        shop = await Shop(client, "well").open()
        machine = await shop.run({"image": HELLO})
        await shop.destroy(machine.id)
        await shop.gone(machine.id)


def test_a_port_that_is_in_use(tmp_path: Path) -> None:
    listener, address = free_port()
    with listener:
        line = refused(tmp_path / "data", "--listen", address)
    assert address in line
    assert "--listen" in line
    assert not (tmp_path / "data").exists()


@pytest.mark.root
def test_containers_without_root() -> None:
    with open_to_all() as place:
        line = refused(place / "data", "--driver", "container", before_it=AS_NOBODY)
        assert "root" in line
        assert list(place.iterdir()) == []


@pytest.mark.root
def test_containers_without_crun(tmp_path: Path) -> None:
    """A PATH with everything in it but crun."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("nft", "mkfs.erofs", "mke2fs"):
        (tools / name).symlink_to(shutil.which(name) or name)
    line = refused(tmp_path / "data", "--listen", "127.0.0.1:0", path=str(tools))
    assert "crun" in line
    assert "apt-get install" in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ("--driver", "vm"),
        ("--listen", "nowhere"),
        ("--listen", "127.0.0.1:99999"),
        ("--listen", "192.0.2.1:0"),
        ("--cpus", "many"),
        ("--cpus", "-1"),
        ("--memory-mib", "0"),
        ("--ipv4-pool", "banana"),
    ],
    ids=" ".join,
)
def test_a_setting_that_cannot_be(tmp_path: Path, flags: tuple[str, str]) -> None:
    line = refused(tmp_path / "data", "--listen", "127.0.0.1:0", *flags)
    assert flags[1] in line or flags[0].lstrip("-").replace("-", "_") in line
    assert not (tmp_path / "data").exists()


def test_a_data_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    line = refused(tmp_path / "file/data", "--listen", "127.0.0.1:0")
    assert "--data-dir" in line
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_key_that_is_damaged_or_no_file(tmp_path: Path) -> None:
    """Not replaced: what was sealed under it could never be read again."""
    data_dir, flags = tmp_path / "data", ("--driver", "process", "--listen", "127.0.0.1:0")
    data_dir.mkdir()
    (data_dir / "key").write_bytes(b"short")
    assert "the key file" in refused(data_dir, *flags) and (data_dir / "key").read_bytes() == b"short"
    (data_dir / "key").unlink()
    (data_dir / "key").mkdir()
    assert f"the node cannot begin on {data_dir}" in refused(data_dir, *flags)

"""Files that are too large for a config, in real machines, by the command line."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.waiting import wait_for

pytestmark = pytest.mark.root

LONGEST_S = 180.0
BIG = b"a line of a large file\n" * 150_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("node"), "--ephemeral") as node:
        yield node


@pytest.fixture
def hawker(node: RunningNode) -> CommandLine:
    return CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})


@pytest.fixture
def big(tmp_path: Path) -> Path:
    (tmp_path / "big").write_bytes(BIG)
    return tmp_path / "big"


def stored(node: RunningNode) -> list[str]:
    return [path.name for path in (node.data_dir / "files").rglob("*") if path.is_file()]


def test_a_large_file_is_there_before_the_first_process_and_anew_at_each_start(
    node: RunningNode, hawker: CommandLine, big: Path, toolbox_image: str
) -> None:
    does = "ls -l /opt/a/big; cat /opt/a/big > /dev/null && echo whole; echo > /opt/a/big; exec sleep 600"
    hawker.say("run", "--name", "one", "-f", f"/opt/a/big={big}", toolbox_image, "sh", "-c", does)
    said = f" {len(BIG)} "
    wait_for(lambda: hawker.say("logs", "one").count("whole") == 1)
    assert said in hawker.say("logs", "one")
    hawker.say("machine", "restart", "one")
    wait_for(lambda: said in hawker.say("logs", "one") and hawker("exec", "one", "cat", "/opt/a/big").out == "\n")
    assert stored(node) == [hashlib.sha256(BIG).hexdigest()]
    big.write_bytes(BIG + b"more")
    hawker.say("machine", "update", "one", "-f", f"/opt/a/big={big}")
    wait_for(lambda: f" {len(BIG) + 4} " in hawker.say("logs", "one"))
    assert len(stored(node)) == 2
    hawker.say("machine", "destroy", "--force", "one")


def test_another_app_s_file_is_no_file(hawker: CommandLine, big: Path, toolbox_image: str, tmp_path: Path) -> None:
    hawker.say("apps", "create", "other")
    hawker.say("run", "--name", "two", "-f", f"/big={big}", toolbox_image)
    digest = hashlib.sha256(BIG).hexdigest()
    file = {"guest_path": "/x", "digest": f"sha256:{digest}", "size": len(BIG)}
    config = json.dumps({"image": toolbox_image, "files": [file]})
    (tmp_path / "config").write_text(config)
    refused = hawker("run", "-a", "other", "--config", str(tmp_path / "config"))
    assert refused.status == 1 and "was uploaded for app 'other'" in refused.err
    hawker.say("run", "--name", "three", "--config", str(tmp_path / "config"))
    cloned = hawker("machine", "clone", "two", "--to-app", "other")
    assert cloned.status == 1 and "was uploaded for app 'other'" in cloned.err
    for name in ("two", "three"):
        hawker.say("machine", "destroy", "--force", name)


def test_a_daemon_that_is_killed_amid_the_copy_ends_it_after_its_restart(
    node: RunningNode, hawker: CommandLine, tmp_path: Path, toolbox_image: str
) -> None:
    (tmp_path / "huge").write_bytes(b"0123456789abcdef" * (6 << 20))
    size = (tmp_path / "huge").stat().st_size
    machine = hawker.say("run", "-d", "--name", "four", "-f", f"/huge={tmp_path / 'huge'}", toolbox_image).strip()
    run = node.data_dir / "machines" / machine / "run"
    wait_for(lambda: run.is_dir() and os.listdir(run), LONGEST_S)
    node.kill()
    node.start()
    wait_for(lambda: f" {size} " in hawker("exec", "four", "ls", "-l", "/huge").out, LONGEST_S)
    wait_for(lambda: "hawker-copy" not in hawker.say("exec", "four", "ls", "-A", "/"))
    hawker.say("machine", "destroy", "--force", "four")

"""A real flyctl against a node, in a network namespace with loopback only: the client also asks services elsewhere, and
not every command can be told not to. `HAWKER_FLYCTL` names the program; it is in none of our registries."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.flyctl_table import ROWS
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO

FLYCTL = os.environ.get("HAWKER_FLYCTL", "")
APP, WITHIN_S = "flyctl-run", 300
_TOML = f'app = "{APP}"\nprimary_region = "local"\n[[vm]]\nmemory = "256mb"\n'

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not FLYCTL, reason="HAWKER_FLYCTL names no flyctl: the table was not run with a real client"),
]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    alone = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    with running_node(tmp_path / "node", "--ephemeral", before_it=alone) as node:
        yield node


def test_each_command_of_the_table_says_what_it_is_to_say(node: RunningNode, tmp_path: Path) -> None:
    """In their order: each goes on with what those before it made."""
    (tmp_path / "fly.toml").write_text(_TOML)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "FLY_API_TOKEN": node.token,
        "FLY_SEND_METRICS": "0",
        "FLY_NO_UPDATE_CHECK": "1",
        **dict.fromkeys(("FLY_API_BASE_URL", "FLY_FLAPS_BASE_URL", "FLY_UIEX_BASE_URL"), node.url),
    }
    inside = ("nsenter", f"--net=/proc/{node.pid}/ns/net", "--", FLYCTL)
    for row in ROWS:
        words = row.command.format(app=APP, image=HELLO, region="local").split()
        done = subprocess.run(
            [*inside, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            check=False,
            text=True,
            timeout=WITHIN_S,
        )
        said = done.stdout + done.stderr
        assert done.returncode == row.status and row.says.format(app=APP) in said, (words, done.returncode, said)

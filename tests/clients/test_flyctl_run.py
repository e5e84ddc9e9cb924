"""A real flyctl against a node, in a network namespace with loopback only: the client also asks services elsewhere, and
not every command can be told not to. `HAWKER_FLYCTL` names the program; it is in none of our registries."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.certificates import issued
from tests.clients.flyctl_table import LAST, ROWS, Row
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO

FLYCTL = os.environ.get("HAWKER_FLYCTL", "")
APP, WITHIN_S = "flyctl-run", 300
_DEPLOY = "deploy -a {app} --image {image} --dns-checks=false"
_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")

_VM = 'primary_region = "local"\n[[vm]]\nmemory = "256mb"\n'
_CHECKED = """[http_service]
internal_port = 8080
[[http_service.checks]]
path = "/"
interval = "2s"
timeout = "2s"
grace_period = "1s"
"""
_MOUNTED = """[processes]
web = "8080"
job = "sleep 1000"
[[mounts]]
source = "data"
destination = "/data"
processes = ["job"]
"""
FILES = {
    "fly.toml": f'app = "{APP}"\n{_VM}{_CHECKED}',
    "fails.toml": f'app = "{APP}"\n{_VM}{_CHECKED}[deploy]\nrelease_command = "exit 3"\n',
    "command.toml": f'app = "{APP}"\n{_VM}{_CHECKED}[deploy]\nrelease_command = "env"\n',
    "mounts.toml": f'app = "{APP}-other"\n{_VM}{_MOUNTED}',
}

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not FLYCTL, reason="HAWKER_FLYCTL names no flyctl: the table was not run with a real client"),
]


class Client:
    """A flyctl in the node's namespace, in a folder with the files that its commands name."""

    def __init__(self, node: RunningNode, folder: Path) -> None:
        self._node, self._folder = node, folder
        self.words = {"app": APP, "image": HELLO, "region": "local"}
        for name, text in FILES.items():
            (folder / name).write_text(text)
        for name, text in zip(("chain.pem", "key.pem"), issued("shop.example.com"), strict=True):
            (folder / name).write_text(text)

    def begin(self, command: str, token: str = "") -> subprocess.Popen[str]:
        node = self._node
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "FLY_API_TOKEN": token or node.token,
            "FLY_SEND_METRICS": "0",
            "FLY_NO_UPDATE_CHECK": "1",
            **dict.fromkeys(("FLY_API_BASE_URL", "FLY_FLAPS_BASE_URL", "FLY_UIEX_BASE_URL"), node.url),
        }
        return subprocess.Popen(
            ["nsenter", f"--net=/proc/{node.pid}/ns/net", "--", FLYCTL, *shlex.split(command.format(**self.words))],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def does(self, row: Row, token: str = "") -> str:
        """What it says; words that the row finds are kept."""
        running = self.begin(row.command, token)
        said = _STYLE.sub("", running.communicate(timeout=WITHIN_S)[0])
        assert running.returncode == row.status and row.says.format(**self.words) in said, (row.command, said)
        if row.finds:
            found = re.search(row.finds, said)
            assert found, (row.finds, said)
            self.words |= found.groupdict()
        return said

    def is_killed(self, command: str, after: str) -> None:
        """As soon as it has said `after`."""
        running = self.begin(command)
        assert running.stdout is not None
        with running.stdout:
            assert any(after in line for line in running.stdout), f"it never said {after}"
            running.kill()
        running.wait(WITHIN_S)


@contextmanager
def client_of(folder: Path, *flags: str) -> Iterator[Client]:
    alone = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    with running_node(folder / "node", "--ephemeral", "--shared-ipv4", "127.0.0.1", *flags, before_it=alone) as node:
        (folder / "at").mkdir()
        yield Client(node, folder / "at")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_of(tmp_path, "--ephemeral", "--volume-encryption", "wished") as client:
        yield client


def test_a_certificate_is_ordered_and_its_failure_is_shown(tmp_path: Path) -> None:
    """Of an authority that is not there: what it takes to get one is judged in tests/edge/test_acme.py."""
    with client_of(tmp_path, "--ephemeral", "--acme-directory", "https://127.0.0.1:9/dir") as client:
        client.does(Row("apps create {app} --org personal"))
        client.does(Row("certs add shop.example.com -a {app}", "shop.example.com"))
        client.does(Row("certs list -a {app}", "shop.example.com"))
        client.does(Row("certs show shop.example.com -a {app}", "Not verified"))
        client.does(Row("certs check shop.example.com -a {app}", "Not verified"))
        client.does(Row("certs add *.example.com -a {app}", "hostname", 1))
        client.does(Row("certs remove shop.example.com -a {app} --yes", "deleted from app {app}"))


def test_each_command_of_the_table_says_what_it_is_to_say(client: Client) -> None:
    """In their order: each goes on with what those before it made."""
    for row in ROWS:
        client.does(row)
    token = client.words["token"]
    client.does(Row(_DEPLOY, "update succeeded"), token)
    client.does(Row("status -a {app}-other", "does not allow", 1), token)
    for row in LAST:
        client.does(row)


def test_a_client_that_is_killed_midway_leaves_an_app_that_the_next_deploy_makes_whole(client: Client) -> None:
    """In a rolling deploy, whose leases end after 13 s; in a bluegreen one the client takes leases of 5 minutes."""
    client.does(Row("apps create {app} --org personal"))
    client.does(Row(_DEPLOY))
    client.does(Row("scale count 3 -a {app} --yes"))
    client.is_killed(_DEPLOY, "update succeeded")
    client.does(Row(_DEPLOY, "[3/3]"))
    client.does(Row("apps destroy {app} --yes", "Destroyed app {app}"))

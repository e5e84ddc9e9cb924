"""Machines reach the node's API at `_api.internal`, with tokens that were made for them. Each node has a host of its
own: of the nodes of one host one has that address.
"""

import os
import subprocess
from pathlib import Path

import pytest

from hawker.chaos.hostile.python_image import PYTHON, REFERENCE
from tests.e2e.running_node import HAWKER, RunningNode, running_node

pytestmark = [pytest.mark.root, pytest.mark.slow]
HOST = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
ASK = """
import sys, urllib.error, urllib.request
url = "http://_api.internal:4280/v1/apps/shop/machines"
try:
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + sys.argv[1]})
    with urllib.request.urlopen(request, timeout=60) as answer:
        print(answer.status, '"one"' in answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except OSError as error:
    print("none", error)
"""
REST = ("--", PYTHON, "-c", "import time; time.sleep(100000)")


class Console:
    """The command, on the node's host; there are two apps with a machine each, in networks of their own."""

    def __init__(self, node: RunningNode, image: Path) -> None:
        self._inside = ("nsenter", f"--net=/proc/{node.pid}/ns/net", "--", HAWKER)
        self._environment = {**os.environ, **node.environment, "HAWKER_DATA_DIR": str(node.data_dir)}
        self.say("images", "import", str(image), "--as", REFERENCE)
        self.say("apps", "create", "shop")
        self.say("apps", "create", "bank", "--network", "apart")
        self.say("run", REFERENCE, "--name", "one", "-a", "shop", *REST)
        self.say("run", REFERENCE, "--name", "far", "-a", "bank", *REST)

    def say(self, *arguments: str) -> str:
        command = (*self._inside, *arguments)
        return subprocess.run(command, env=self._environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def ask(self, machine: str, token: str) -> str:
        """What the machine gets for its question for the machines of the shop."""
        return self.say("exec", "--no-stdin", machine, PYTHON, "-c", ASK, token).strip()


def test_machine_calls_the_api_with_a_token_of_its_own_and_never_with_the_root_token(
    tmp_path: Path, python_image: Path
) -> None:
    with running_node(tmp_path / "node", "--ephemeral", "--machine-api", before_it=HOST) as node:
        console = Console(node, python_image)
        of_shop = console.say("tokens", "create", "--app", "shop", "--actions", "r").strip()
        of_bank = console.say("tokens", "create", "--app", "bank", "--actions", "r").strip()
        assert console.ask("one", of_shop) == "200 True"
        assert console.ask("far", of_shop) == "200 True", "the token counts, and not the network"
        assert console.ask("one", of_bank).startswith("403")
        assert console.ask("one", "none").startswith("401")
        assert "the root token is not taken from a machine" in console.ask("one", node.token)


@pytest.mark.long(reason="a node of its own; tests/api/test_listener.py has the listener, the test above the refusals")
def test_machine_of_a_node_without_the_setting_does_not_reach_the_api(tmp_path: Path, python_image: Path) -> None:
    with running_node(tmp_path / "node", "--ephemeral", before_it=HOST) as node:
        console = Console(node, python_image)
        assert console.ask("one", node.token).startswith("none")

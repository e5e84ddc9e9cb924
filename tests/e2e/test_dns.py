"""Machines find each other by name: from inside, with the C library's resolver, and without the daemon."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from hawker.chaos.hostile.python_image import PYTHON, REFERENCE
from hawker.host.own_user import Capability
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode
from tests.rights import RESOLVER, nobody, rights_of
from tests.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]
REST = ("--", PYTHON, "-c", "import time; time.sleep(100000)")
FIND = """
import socket, sys
try:
    print(",".join(sorted({each[4][0] for each in socket.getaddrinfo(sys.argv[1], 80, socket.AF_INET6)})))
except socket.gaierror as error:
    print("none", error.errno)
"""


@pytest.fixture(scope="module")
def hawker(node: RunningNode, python_image: Path) -> CommandLine:
    line = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    line.say("images", "import", str(python_image), "--as", REFERENCE)
    line.say("apps", "create", "shop")
    line.say("apps", "create", "other", "--network", "apart")
    line.say("run", REFERENCE, "--name", "one", "-a", "shop", *REST)
    line.say("run", REFERENCE, "--name", "two", "-a", "shop", *REST)
    line.say("run", REFERENCE, "--name", "far", "-a", "other", *REST)
    return line


def status(hawker: CommandLine, name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(hawker.say("machine", "status", name, "-o", "json"))["machine"]
    return found


def find(hawker: CommandLine, machine: str, name: str) -> str:
    return hawker.say("exec", "--no-stdin", machine, PYTHON, "-c", FIND, name).strip()


def resolver_of(node: RunningNode) -> int:
    """The process that answers; 0 while one that begins writes its number."""
    return int((node.place.dns / "lock").read_text() or 0)


def test_a_machine_finds_others_of_its_network_by_name_and_no_others(hawker: CommandLine) -> None:
    one, two = status(hawker, "one"), status(hawker, "two")
    both = ",".join(sorted((one["private_ip"], two["private_ip"])))
    wait_for(lambda: find(hawker, "one", "shop.internal") == both)  # the resolver is told once a machine has started
    assert find(hawker, "one", f"{two['id']}.vm.shop.internal") == two["private_ip"]
    assert find(hawker, "one", "local.shop.internal") == both
    assert find(hawker, "one", "other.internal").startswith("none")
    assert find(hawker, "far", "shop.internal").startswith("none")
    wait_for(lambda: find(hawker, "far", "other.internal") == status(hawker, "far")["private_ip"])


def test_a_stopped_machine_leaves_the_answers_and_comes_back(hawker: CommandLine) -> None:
    one, two = status(hawker, "one")["private_ip"], status(hawker, "two")["private_ip"]
    hawker.say("machine", "stop", "two")
    wait_for(lambda: find(hawker, "one", "shop.internal") == one)
    hawker.say("machine", "start", "two")
    wait_for(lambda: find(hawker, "one", "shop.internal") == ",".join(sorted((one, two))))


def test_a_config_with_name_servers_of_its_own_keeps_them(hawker: CommandLine, tmp_path: Path) -> None:
    config = {"image": REFERENCE, "dns": {"nameservers": ["192.0.2.7"]}, "init": {"exec": list(REST[1:])}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    hawker.say("run", "--name", "own", "-a", "shop", "--config", str(tmp_path / "config.json"))
    read = "print(open('/etc/resolv.conf').read())"
    assert hawker.say("exec", "--no-stdin", "own", PYTHON, "-c", read).split() == ["nameserver", "192.0.2.7"]
    assert hawker.say("exec", "--no-stdin", "one", PYTHON, "-c", read).split() == ["nameserver", "fdaa::3"]
    hawker.say("machine", "destroy", "--force", "own")


def test_a_machine_reaches_no_other_port_of_the_host_at_the_resolvers_address(hawker: CommandLine) -> None:
    def ask(port: int, within_s: int) -> str:
        to = f"s = socket.socket(socket.AF_INET6); s.settimeout({within_s}); print(s.connect_ex(('fdaa::3', {port})))"
        return hawker.say("exec", "--no-stdin", "one", PYTHON, "-c", f"import socket; {to}").strip()

    assert ask(53, within_s=60) == "0"
    assert ask(22, within_s=1) != "0"


def test_names_are_answered_while_the_daemon_is_away_and_the_resolver_comes_back(
    hawker: CommandLine, node: RunningNode
) -> None:
    hawker.say("run", REFERENCE, "--name", "asker", "-a", "shop", "--", PYTHON, "-c", """
import socket, time
while True:
    try:
        found = len(socket.getaddrinfo("shop.internal", 80, socket.AF_INET6, socket.SOCK_STREAM))
    except OSError:
        found = 0
    print(time.time(), found, flush=True)
    time.sleep(0.2)
""")  # fmt: skip
    before = resolver_of(node)
    wait_for(lambda: answers(hawker)[-1:] == [3])
    rights = nobody(RESOLVER, Capability.NET_BIND_SERVICE, Capability.NET_RAW)
    assert rights_of(before) == rights, "who reads questions is not root"
    node.kill()
    asleep = node.place.dns / "names"
    kept = asleep.read_bytes()
    node.start()
    assert resolver_of(node) == before, "the daemon takes up the resolver that is there"
    assert kept and 0 not in answers(hawker), "each question was answered"
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: resolver_of(node) not in (0, before) and alive(resolver_of(node)))
    wait_for(lambda: answers(hawker)[-1:] == [3])


def answers(hawker: CommandLine) -> list[int]:
    lines = hawker.say("logs", "asker").splitlines()
    return [int(line.split()[-1]) for line in lines if len(line.split()) > 1]


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False

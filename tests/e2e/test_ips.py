"""Addresses of apps on a real node: kept over a crash, given once, and back with the app."""

import json
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest

from hawker.api.contract.app import IpAssignment
from hawker.cli.exits import ExitStatus
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node

pytestmark = pytest.mark.slow
POOL = ("--public-ipv4", "203.0.113.8/32", "--public-ipv4", "203.0.113.4/30", "--public-ipv6", "2001:db8:7::/64")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    flags = ("--ephemeral", "--driver", "process", "--shared-ipv4", "192.0.2.80", *POOL)
    with running_node(tmp_path_factory.mktemp("node"), "--ephemeral", *flags) as node:
        yield node


@pytest.fixture
def hawker(node: RunningNode) -> Iterator[CommandLine]:
    """There are two apps, with all addresses to be given."""
    hawker = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    for app in ("shop", "bank"):
        hawker.say("apps", "create", app)
    yield hawker
    for app in ("shop", "bank"):
        hawker("apps", "destroy", app)


def listed(hawker: CommandLine, app: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(hawker.say("ips", "list", "-a", app, "-o", "json"))["ips"]
    return found


def allocate(hawker: CommandLine, app: str, *words: str) -> str:
    return hawker.say("ips", "allocate", "-a", app, *words).strip()


def test_an_address_is_given_once_kept_over_a_crash_and_given_again_when_its_app_is_gone(
    node: RunningNode, hawker: CommandLine
) -> None:
    given = [allocate(hawker, app, "v4") for app in ("shop", "bank", "shop")]
    assert sorted(given) == ["203.0.113.5", "203.0.113.6", "203.0.113.8"]
    full = hawker("ips", "allocate", "-a", "bank", "v4")
    assert full.status != ExitStatus.OK and "add to --public-ipv4" in full.err
    before = listed(hawker, "shop")
    node.kill()
    node.start()
    assert listed(hawker, "shop") == before
    hawker.say("apps", "destroy", "shop")
    assert {allocate(hawker, "bank", "v4") for _ in range(2)} == {given[0], given[2]}


def test_each_type_is_what_it_says(hawker: CommandLine) -> None:
    assert allocate(hawker, "shop", "shared_v4") == allocate(hawker, "bank", "shared_v4") == "192.0.2.80"
    assert ip_address(allocate(hawker, "shop", "v6")).exploded.startswith("2001:0db8:0007:")
    private = allocate(hawker, "shop", "private_v6", "--network", "lab")
    assert private.startswith("fdaa:") and private != allocate(hawker, "shop", "private_v6")
    assert [ip["type"] for ip in listed(hawker, "shop")] == ["shared_v4", "v6", "private_v6", "private_v6"]
    hawker.say("ips", "release", "-a", "shop", private)
    assert private not in [ip["ip"] for ip in listed(hawker, "shop")]
    assert hawker("ips", "release", "-a", "shop", private).status == ExitStatus.NOT_FOUND
    assert set(listed(hawker, "shop")[0]) <= set(IpAssignment.__struct_fields__)

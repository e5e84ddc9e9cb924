"""What is printed for routers, and who is behind the warden's own words."""

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from hawker import log
from hawker.api.contract.port import EdgeAddress
from hawker.cli.commands.edge import bird, command, frr
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode

UP4 = EdgeAddress(ip="203.0.113.7", app="shop", up=True)
UP6 = EdgeAddress(ip="2001:db8::7", app="shop", up=True)
DOWN = EdgeAddress(ip="203.0.113.8", app="bank", up=False, why="Cannot assign requested address")


def test_addresses_are_shown_with_the_reason_of_those_that_are_down(hawker: Hawker, node: FakeNode) -> None:
    node.edge_addresses = (UP4, DOWN)
    head, up, down = hawker("edge", "announce").out.splitlines()
    assert head.split()[:3] == ["ADDRESS", "APP", "UP"]
    assert up.split() == ["203.0.113.7", "shop", "yes", "-"]
    assert down.split(maxsplit=3) == ["203.0.113.8", "bank", "no", "Cannot assign requested address"]
    printed = hawker("edge", "announce", "-o", "json").out
    assert msgspec.json.decode(printed, type=list[EdgeAddress]) == [UP4, DOWN]


def test_a_list_without_addresses_says_how_an_app_gets_one(hawker: Hawker) -> None:
    assert "hawker ips allocate" in hawker("edge", "announce").out
    assert hawker("edge", "announce", "--router", "frr").out == ""


def test_a_router_gets_a_route_for_each_address_that_is_up(hawker: Hawker, node: FakeNode) -> None:
    node.edge_addresses = (UP4, DOWN, UP6)
    assert hawker("edge", "announce", "--router", "frr").out.splitlines() == [
        "ip route 203.0.113.7/32 blackhole",
        "ipv6 route 2001:db8::7/128 blackhole",
    ]
    printed = hawker("edge", "announce", "--router", "bird").out
    assert "  route 203.0.113.7/32 blackhole;\n" in printed and "203.0.113.8" not in printed


@pytest.mark.skipif(shutil.which("bird") is None, reason="bird, which reads what is printed for it, is not installed")
@pytest.mark.parametrize("found", [(), (UP4, DOWN, UP6)])
def test_bird_understands_what_is_printed_for_it(found: tuple[EdgeAddress, ...], tmp_path: Path) -> None:
    file = tmp_path / "bird.conf"
    file.write_text(f"router id 192.0.2.1;\n{bird(found)}\n")
    subprocess.run(["bird", "-p", "-c", str(file)], check=True)


@pytest.mark.skipif(shutil.which("vtysh") is None, reason="vtysh, which reads what is printed for FRR, is not there")
def test_frr_understands_what_is_printed_for_it(tmp_path: Path) -> None:
    file = tmp_path / "frr.conf"
    file.write_text(f"{frr((UP4, DOWN, UP6))}\n")
    subprocess.run(["vtysh", "--config_dir", str(tmp_path), "-C", "-f", str(file)], check=True)


def test_a_daemon_of_any_version_starts_the_warden_by_its_own_words(
    tmp_path: Path, hawker: Hawker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no node ever was, so it goes no further."""
    monkeypatch.setattr(log, "configure", lambda level: None)  # it is this process's log, and outlives the test
    for words in (["edge"], ["edge", "serve"]):
        said = hawker(*words, "--data-dir", str(tmp_path))
        assert said.status != ExitStatus.OK and f"{tmp_path}/edge is not there" in said.err
    assert "announce" in command.get_help(command.make_context("edge", [], resilient_parsing=True))

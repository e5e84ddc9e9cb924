"""What `hawker node mesh` does and refuses; how a node takes its new key is in tests/fleet/test_mesh.py."""

import json
from pathlib import Path

import click
import pytest

from hawker.cli.exits import ExitStatus
from hawker.cli.main import main
from hawker.host.mesh.device import OwnDevice
from hawker.host.mesh.wireguard import MeshPeer, MeshState, PeerTraffic, own_key
from hawker.place import Place
from hawker.up.commands.mesh import tunnels, tunnels_table


def test_rekey_replaces_the_key_and_says_the_public_half(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(tmp_path)
    place.mesh.mkdir()
    before = own_key(place.mesh_key)
    assert main(["node", "mesh", "rekey", "--data-dir", str(tmp_path), "-o", "json"]) == ExitStatus.OK
    after = own_key(place.mesh_key)
    assert json.loads(capsys.readouterr().out)["key"] == after.public != before.public


@pytest.mark.parametrize("verb", ["rekey", "show"])
def test_mesh_of_a_node_without_tunnels_is_refused_and_no_key_is_made(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["node", "mesh", verb, "--data-dir", str(tmp_path)]) != ExitStatus.OK
    assert "has no tunnels" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_show_of_a_node_without_a_device_has_no_tunnel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(tmp_path)
    place.mesh.mkdir()
    own_key(place.mesh_key)
    assert main(["node", "mesh", "show", "--data-dir", str(tmp_path), "-o", "json"]) == ExitStatus.OK
    assert json.loads(capsys.readouterr().out) == []


def test_tunnels_work_while_hands_are_shaken_and_are_silent_after_200_s() -> None:
    now = 1e9
    state = MeshState(
        peers={
            "new": MeshPeer("10.0.0.3:4283", frozenset({"fdaa:0:7::300:0/112"})),
            "old": MeshPeer("10.0.0.2:4283", frozenset({"fdaa:0:7::200:0/112", "fdaa:0:7::400:0/112"})),
            "never": MeshPeer("10.0.0.4:4283"),
        },
        traffic={"new": PeerTraffic(now - 90, 2048, 100), "old": PeerTraffic(now - 200, 5, 6)},
    )
    found = tunnels(OwnDevice(state, "/usr/bin/wireguard-go"), now)
    assert [(each.key, each.state, each.machines) for each in found] == [
        ("old", "silent", 2), ("new", "works", 1), ("never", "silent", 0)
    ]  # fmt: skip
    head, first, second, third = click.unstyle(tunnels_table(found, now)).splitlines()
    assert head.split() == ["HOST", "STATE", "HANDSHAKE", "MACHINES", "RECEIVED", "SENT", "CARRIER", "KEY"]
    assert first.split() == [
        "10.0.0.2:4283",
        "silent",
        "3",
        "min",
        "ago",
        "2",
        "5",
        "B",
        "6",
        "B",
        "/usr/bin/wireguard-go",
        "old",
    ]
    assert "90 s ago" in second and "2.0 KiB" in second and third.split()[:3] == ["10.0.0.4:4283", "silent", "-"]

import base64
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_a_peers_private_key_stays_here_and_belongs_to_the_public_one(
    node: FakeNode, hawker: Hawker, tmp_path: Path
) -> None:
    file = tmp_path / "hawker.conf"
    said = hawker("wireguard", "create", "acme", "laptop", str(file), "--network", "dev")
    assert said.out == f"laptop is fdaa:0:7::2:2: sudo wg-quick up {file}\n"
    call = node.call("put_wireguard_peer")
    assert (call.params.org_slug, call.params.peer, call.body.network) == ("acme", "laptop", "dev")
    lines = dict(line.split(" = ", 1) for line in file.read_text().splitlines() if " = " in line)
    made = X25519PrivateKey.from_private_bytes(base64.b64decode(lines["PrivateKey"]))
    assert base64.b64encode(made.public_key().public_bytes_raw()).decode() == call.body.pubkey
    assert (lines["Address"], lines["DNS"]) == ("fdaa:0:7::2:2/120", "fdaa:0:7::3")
    assert (lines["PublicKey"], lines["AllowedIPs"]) == ("gateway", "fdaa:0:7::/48")
    assert (lines["Endpoint"], lines["PersistentKeepalive"]) == ("gate.example.com:51820", "15")
    assert file.stat().st_mode & 0o777 == 0o600 and lines["PrivateKey"] not in said.out + said.err


def test_a_configuration_without_a_file_is_standard_output(hawker: Hawker) -> None:
    said = hawker("wireguard", "create", "acme", "laptop")
    assert said.out.startswith("# laptop of acme\n[Interface]\nPrivateKey = ")


def test_a_file_that_is_there_is_kept_and_json_needs_one(node: FakeNode, hawker: Hawker, tmp_path: Path) -> None:
    file = tmp_path / "hawker.conf"
    file.write_text("mine")
    said = hawker("wireguard", "create", "acme", "laptop", str(file))
    assert said.status == ExitStatus.USAGE and "is there already" in said.err and file.read_text() == "mine"
    said = hawker("wireguard", "create", "acme", "laptop", "-o", "json")
    assert said.status == ExitStatus.USAGE and "needs FILE" in said.err


def test_peers_are_listed_and_removed(node: FakeNode, hawker: Hawker) -> None:
    heading, row = hawker("wireguard", "list", "acme").out.splitlines()
    assert heading.split() == ["NAME", "NETWORK", "ADDRESS", "CREATED"] and row.startswith("laptop")
    assert hawker("wireguard", "remove", "acme", "laptop").status == ExitStatus.OK
    assert node.call("delete_wireguard_peer").params.peer == "laptop"

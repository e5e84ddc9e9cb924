"""Private keys that a real node was given are in clear nowhere: not in its files, its store's rows and logs, in no
answer of its API, at no other node, and in no backup."""

import base64
import json
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateNumbers
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from hawker.api.contract.secret import SET_SECRET_KEY, SecretParams, SetSecretKeyRequest
from hawker.api.route import Socket
from hawker.api.routes import PUBLIC_ROUTES
from hawker.clock import SystemClock
from hawker.secret.acme_order import Authority, _account_key
from hawker.secret.certificates import ACCOUNT_PURPOSE
from hawker.vault import Vault
from tests.certificates import issued, key_pem, new_key
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.test_fleet_join import HOSTS, WITHIN_S
from tests.e2e.two_hosts import met, two_hosts
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.anyio]

_LEAST_BYTES = 20
_ASIDE = {"images", "kernels", "netns", "volumes", "mounts", "disks", "layers", "rootfs"}
"""What a node has not written itself, and what its machines have."""


def shapes(secret: bytes) -> tuple[bytes, ...]:
    """What of these bytes is found in data that has them plain, in hex or in base64, wherever they begin in it."""
    assert len(secret) >= _LEAST_BYTES
    cores = [base64.b64encode(bytes(before) + secret)[4 if before else 0 : -4].rstrip(b"=") for before in range(3)]
    urls = [base64.urlsafe_b64encode(base64.b64decode(core + b"=" * (-len(core) % 4))).rstrip(b"=") for core in cores]
    return secret, secret.hex().encode(), secret.hex().upper().encode(), *cores, *urls


def found_in(data: bytes, secrets: Mapping[str, bytes]) -> list[str]:
    """Which of them. Lines are put together, also those of JSON."""
    texts = {data, data.replace(b"\r", b"").replace(b"\n", b""), data.replace(b"\\r", b"").replace(b"\\n", b"")}
    return [
        name for name, secret in secrets.items() if any(shape in each for shape in shapes(secret) for each in texts)
    ]


def heart(pem: str) -> bytes:
    """The bytes without which the key is nothing; of RSA's the beginning of a prime."""
    numbers = load_pem_private_key(pem.encode(), None).private_numbers()  # type: ignore[union-attr]
    if isinstance(numbers, RSAPrivateNumbers):
        return numbers.p.to_bytes((numbers.p.bit_length() + 7) // 8, "big")[:40]
    assert isinstance(numbers, EllipticCurvePrivateNumbers)
    return numbers.private_value.to_bytes(32, "big")


@pytest.mark.parametrize("kind", ["p256", "rsa2048"])
def test_a_key_is_found_in_each_shape_that_it_may_have(kind: str) -> None:
    pem = key_pem(new_key(kind))
    der = base64.b64decode("".join(pem.splitlines()[1:-1]))
    secrets = {"this": heart(pem), "another": heart(key_pem(new_key("p256")))}
    for data in (pem.encode(), der, der.hex().encode(), json.dumps({"key": pem}).encode(), b"x" + pem.encode()):
        assert found_in(data, secrets) == ["this"]
    for before in range(3):
        inside = bytes(before) + der
        assert [found_in(code(inside), secrets) for code in (base64.b64encode, base64.urlsafe_b64encode)] == [
            ["this"]
        ] * 2


def rows(file: Path) -> Iterator[tuple[str, bytes]]:
    """Of every table of an SQLite file, each as one: a long value lies in several pages of the file."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as opened:
        for (table,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in opened.execute(f'SELECT * FROM "{table}"'):
                cells = (each if isinstance(each, bytes) else str(each).encode() for each in row)
                yield f"{file.name}: {table}", b"\0".join(cells)


def written(node: RunningNode) -> Iterator[tuple[str, bytes]]:
    """All that the node has written, its rows and its log."""
    for file in sorted(node.directory.rglob("*")):
        within = file.relative_to(node.directory)
        if _ASIDE.intersection(within.parts):
            continue
        with suppress(FileNotFoundError):  # it was a moment ago
            if file.is_file():
                yield str(within), file.read_bytes()
    for store in filter(Path.is_file, (node.place.store, node.place.catalog)):
        yield from rows(store)


def answers(node: RunningNode, names: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """What each call answers that changes nothing, errors too; of what has no end the beginning."""
    paths = [each.path for each in PUBLIC_ROUTES if each.method == "GET" and not isinstance(each, Socket)]
    for path in (*paths, "/metrics", "/metrics/edge", "/openapi.json"):
        for name, value in names.items():
            path = path.replace(f"{{{name}}}", value)  # noqa: PLW2901
        asked = urllib.request.Request(f"{node.url}{path}", headers={"Authorization": f"Bearer {node.token}"})
        try:
            with urllib.request.urlopen(asked, timeout=2) as answer:
                yield path, answer.read1(4 << 20)
        except urllib.error.HTTPError as error:
            with suppress(TimeoutError):
                yield path, error.read()
        except TimeoutError:  # one that waits for what has not happened
            continue


async def test_a_node_has_no_private_key_of_a_tenant_in_clear(tmp_path: Path) -> None:
    ec_key, rsa_key, signing = new_key("p256"), new_key("rsa2048"), bytes(range(100, 132))
    flags = ("--edge-address", "127.0.0.1")
    with running_node(tmp_path / "node", *flags) as node:
        hawker = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
        hawker.say("apps", "create", "shop")
        for name, key in (("ec.example.com", ec_key), ("rsa.example.com", rsa_key)):
            chain, pem = issued(name, key=key)
            (tmp_path / "chain.pem").write_text(chain)
            (tmp_path / "key.pem").write_text(pem)
            files = ("--chain", str(tmp_path / "chain.pem"), "--key", str(tmp_path / "key.pem"))
            hawker.say("certs", "import", "-a", "shop", name, *files)
        machine = json.loads(hawker.say("machine", "run", "-a", "shop", "hawker/hello", "-o", "json"))["id"]
        async with node.client() as client:
            params = SecretParams(app_name="shop", secret_name="signer")
            await client.call(SET_SECRET_KEY, params=params, body=SetSecretKeyRequest(type="es256", value=signing))
        secrets = {"ec": heart(key_pem(ec_key)), "rsa": heart(key_pem(rsa_key)), "signer": signing}
        names = {"app_name": "shop", "machine_id": machine, "secret_name": "signer", "hostname": "ec.example.com"}
        names |= {"org_slug": "personal"}
        told = list(answers(node, names))
        node.kill()  # its stores are its own while it runs
        kept = list(written(node))
        for looked_at in (told, kept):
            assert any(b"ec.example.com" in data for _, data in looked_at), "what is public is not found either"
        told += kept
        places = [(where, name) for where, data in told for name in found_in(data, secrets)]
        assert places == []


OWN_KEYS = ("key", "peers")
"""In the folder of the mesh: the files that have a key of this host's end, of tunnels to hosts and to peers."""


def account_keys(node: RunningNode) -> dict[str, bytes]:
    """What the node's account at a certificate authority is kept with: the seed, and the key that is made of it."""
    seed = Vault(node.place.key.read_bytes(), SystemClock()).key_for(ACCOUNT_PURPOSE)
    authority = Authority(directory="", email="", ca_file=None, binding_file=None, key=seed)
    return {
        "seed of the account": seed,
        "account": _account_key(authority).key.private_numbers().private_value.to_bytes(32, "big"),
    }


def tunnel_keys(node: RunningNode) -> dict[str, bytes]:
    return {f"tunnel {name}": base64.b64decode((node.place.mesh / name).read_bytes()) for name in OWN_KEYS}


def is_own_key(node: RunningNode, where: str) -> bool:
    return where in {str((node.place.mesh / name).relative_to(node.directory)) for name in OWN_KEYS}


def backed_up(*places: Path) -> Iterator[tuple[str, bytes]]:
    for place in places:
        for file in (place, *place.rglob("*")):
            if file.is_file():
                yield file.name, file.read_bytes()


def settled(node: RunningNode, hostname: str) -> bool:
    """The certificate has come to this node's catalog."""
    with closing(sqlite3.connect(f"file:{node.place.catalog}?mode=ro", uri=True)) as opened:
        return bool(opened.execute("SELECT 1 FROM certificates WHERE hostname = ?", (hostname,)).fetchall())


@pytest.mark.long(reason="two nodes and a backup; the test of one node is the short form")
async def test_a_fleet_and_its_backups_have_no_private_key_in_clear(tmp_path: Path) -> None:
    key, signing, kept, passphrase = new_key("p256"), bytes(range(100, 132)), tmp_path / "kept", tmp_path / "passphrase"
    passphrase.write_bytes(b"correct horse battery\n")
    common = ["--backup-url", str(kept), "--backup-passphrase-file", str(passphrase)]
    common += ["--acme-directory", "https://127.0.0.1:1/directory"]
    flags = [
        (*common, "--edge-address", address, "--wireguard-listen", f"{address}:{free_port()}") for address in HOSTS[:2]
    ]
    with two_hosts(tmp_path, flags) as pair:
        await met(pair)
        first, second = (host.node for host in pair)
        hawker = CommandLine(first.environment | {"HAWKER_DATA_DIR": str(first.data_dir)})
        hawker.say("apps", "create", "shop")
        chain, pem = issued("ec.example.com", key=key)
        (tmp_path / "chain.pem").write_text(chain)
        (tmp_path / "key.pem").write_text(pem)
        files = ("--chain", str(tmp_path / "chain.pem"), "--key", str(tmp_path / "key.pem"))
        hawker.say("certs", "import", "-a", "shop", "ec.example.com", *files)
        hawker("certs", "add", "-a", "shop", "new.example.com")  # by an authority that does not answer
        hawker.say("wireguard", "create", "personal", "laptop", str(tmp_path / "laptop.conf"))
        quick = (tmp_path / "laptop.conf").read_text()
        async with first.client() as client:
            params = SecretParams(app_name="shop", secret_name="signer")
            await client.call(SET_SECRET_KEY, params=params, body=SetSecretKeyRequest(type="es256", value=signing))
        volume = hawker.say("volumes", "create", "data", "-a", "shop", "--size", "1", "--no-encryption", "-o", "json")
        hawker.say("volumes", "backup", json.loads(volume)["id"])
        hawker.say("node", "backup", str(tmp_path / "store.db"))
        await eventually(lambda: settled(second, "ec.example.com"), WITHIN_S)
        secrets = {"ec": heart(key_pem(key)), "signer": signing}
        secrets["peer"] = base64.b64decode(quick.partition("PrivateKey = ")[2].partition("\n")[0])
        for number, node in enumerate((first, second)):
            own = account_keys(node) | tunnel_keys(node)
            secrets |= {f"{name} of {number}": value for name, value in own.items()}
        names = {"app_name": "shop", "secret_name": "signer", "hostname": "ec.example.com", "org_slug": "personal"}
        told = [each for node in (first, second) for each in answers(node, names)]
        for node in (first, second):
            node.kill()
        files_of = [(where, data, is_own_key(node, where)) for node in (first, second) for where, data in written(node)]
        for node in (first, second):
            node.start()  # to leave the host as it was
        backups = [*backed_up(kept, tmp_path / "store.db"), *rows(tmp_path / "store.db")]
        kept_here = [(where, data) for where, data, is_own in files_of if not is_own]
        for looked_at in (told, kept_here, backups):
            assert any(b"shop" in data for _, data in looked_at), "what is public is not found either"
        at_home = {name for _, data, is_own in files_of if is_own for name in found_in(data, secrets)}
        assert at_home == {name for name in secrets if name.startswith("tunnel")}, "each is in the file that is for it"
        places = [(where, name) for where, data in (*told, *kept_here, *backups) for name in found_in(data, secrets)]
        assert places == []

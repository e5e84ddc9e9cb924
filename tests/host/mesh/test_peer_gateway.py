"""People's own computers in private networks: real packets of a stranger's WireGuard, and what they do not reach."""

import base64
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import dns.message
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hawker.chaos.fleet.network_lab import LabHost, NetworkLab
from hawker.host.address import gateway, machine_prefix, network_prefix, network_resolver, peer_ip
from hawker.host.mesh.wireguard import own_key
from hawker.host.own_user import make_folder
from hawker.ids import AppName, MachineId, NodeId
from hawker.names import RESOLVER, KnownNames, NamedApp, NamedMachine, NamedPeer, write_names
from tests.host.mesh.mesh_host import PEER_PORT, PORT, Peer, Plan
from tests.host.mesh.test_packets import ASK, CANARY, SERVE, Place, begin, run
from tests.node_ids import own_node_id

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("wireguard-go") is None, reason="wireguard-go is missing"),
]
MINE, THEIRS, QUIET_S, WITHIN_S = 7, 8, "0.5", "30"
RESOLVE = """
import anyio, sys
from pathlib import Path
from hawker.clock import SystemClock
from hawker.dns.forward import Forwarder
from hawker.dns.resolver import NameResolver, Names
from hawker.dns.server import ResolverSockets
from hawker.ids import NodeId

async def main(folder, node):
    clock = SystemClock()
    names = Names(folder, clock)
    resolver = NameResolver(names, Forwarder(names.upstream, clock), clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ResolverSockets(resolver, node, folder, tasks).serve)
        while not (folder / "own" / "bound").exists() or "p" not in (folder / "own" / "bound").read_text():
            await anyio.sleep(0.05)
        print("ready", flush=True)

anyio.run(main, Path(sys.argv[1]), NodeId(sys.argv[2]))
"""
API = """
import socket
listening = socket.create_server(("fdaa::3", 4280), family=socket.AF_INET6)
print("ready", flush=True)
while True:
    connection, caller = listening.accept()
    with connection:
        connection.sendall(caller[0].encode())
"""
CALL = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 4280), timeout=float(sys.argv[2])) as connection:
        print(connection.recv(100).decode())
except OSError as error:
    print("none", error)
"""
QUESTION = """
import socket, sys
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as asking:
    asking.settimeout(float(sys.argv[3]))
    try:
        asking.sendto(bytes.fromhex(sys.argv[2]), (sys.argv[1], 53))
        print(asking.recv(4096).hex())
    except OSError as error:
        print("none", error)
"""


@dataclass(frozen=True, slots=True)
class Entered:
    """A gateway with a machine of the person's network and a stranger's; another host with a machine of the network;
    and the person's computer, which sends everything private into its tunnel."""

    laptop: LabHost
    here: Place
    there: Place
    stranger: Place
    address: str

    def asks(self, address: str, within_s: str = WITHIN_S) -> str:
        words = (*self.laptop.before_it, sys.executable, "-c", ASK, "stream", address, within_s, "small")
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    def calls(self, address: str, within_s: str = WITHIN_S) -> str:
        """Whom the API says that it is called by."""
        words = (*self.laptop.before_it, sys.executable, "-c", CALL, address, within_s)
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    def resolves(self, server: str, name: str, kind: str = "AAAA", within_s: str = WITHIN_S) -> list[str] | None:
        query = dns.message.make_query(name, kind)
        words = (*self.laptop.before_it, sys.executable, "-c", QUESTION, server, query.to_wire().hex(), within_s)
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        if said.startswith("none"):
            return None
        return [each.to_text() for section in dns.message.from_wire(bytes.fromhex(said)).answer for each in section]


@pytest.fixture(scope="module")
def entered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entered]:
    place = tmp_path_factory.mktemp("peers")
    folders = [place / name for name in ("street", "0", "1", "2")]
    for folder in folders:
        make_folder(folder, None)
    nodes = (own_node_id(), own_node_id())
    peer_id = MachineId(secrets.token_hex(7))
    pair = X25519PrivateKey.generate()
    public = base64.b64encode(pair.public_key().public_bytes_raw()).decode()
    with NetworkLab(folders[0], 3) as lab, ExitStack() as stack:
        gate, other, laptop = lab.hosts
        here, stranger = (
            Place(gate, folders[1] / "netns", MachineId(secrets.token_hex(7)), network) for network in (MINE, THEIRS)
        )
        there = Place(other, folders[2] / "netns", MachineId(secrets.token_hex(7)), MINE)
        address = str(peer_ip(MINE, peer_id))
        own_prefix = f"{network_prefix(MINE)[int(peer_id, 16) << 24 | 2 << 16]}/112"
        entering = ((public, MINE, peer_id),)
        at = ((gate, folders[1]), (other, folders[2]))
        for node, (host, folder), machines, far, allowed, entered_by in (
            (nodes[0], at[0], (here, stranger), at[1], (there.prefix,), entering),
            (nodes[1], at[1], (there,), at[0], (here.prefix, own_prefix), ()),
        ):
            peer = Peer(key=own_key(far[1] / "key").public, endpoint=f"{far[0].address}:{PORT}", allowed=allowed)
            own = tuple((each.id, each.network_id) for each in machines)
            begin(stack, host, Plan(node=node, place=str(folder), machines=own, peers=(peer,), entering=entered_by))
        for each in (here, there, stranger):
            run(stack, (*each.inside, SERVE))
        known(folders[1], nodes[0], here, address)
        resolver = run(stack, (*gate.before_it, sys.executable, "-c", RESOLVE, str(folders[1]), nodes[0]))
        stack.callback(resolver.kill)
        answering = run(stack, (*gate.before_it, sys.executable, "-c", API))
        stack.callback(answering.kill)
        enter(laptop, folders[3], pair, own_key(folders[1] / "peers").public, f"{gate.address}:{PEER_PORT}", address)
        stack.callback(laptop.run, "ip", "link", "delete", "wg0")
        yield Entered(laptop, here, there, stranger, address)


def known(folder: Path, node: NodeId, machine: Place, peer: str) -> None:
    """What the resolver of the gateway knows."""
    web = AppName("web")
    named = NamedMachine(id=machine.id, app=web, ip=machine.address, node=node, region="ams", started=True)
    apps = (NamedApp(name=web, network_id=MINE), NamedApp(name=AppName("secret"), network_id=THEIRS))
    peers = (NamedPeer(name="laptop", ip=peer, here=True), NamedPeer(name="interactive-1", ip=peer))
    write_names(folder, KnownNames(node=node, region="ams", apps=apps, machines=(named,), peers=peers, api=True))


def enter(laptop: LabHost, folder: Path, pair: X25519PrivateKey, public: str, endpoint: str, address: str) -> None:
    """As wg-quick does, but that everything private goes into the tunnel: this person tries what is not theirs."""
    laptop.run("wireguard-go", "wg0")
    config = folder / "wg0.conf"
    private = base64.b64encode(pair.private_bytes_raw()).decode()
    config.write_text(
        f"[Interface]\nPrivateKey = {private}\n[Peer]\nPublicKey = {public}\nAllowedIPs = fdaa::/16\n"
        f"Endpoint = {endpoint}\nPersistentKeepalive = 15\n"
    )
    laptop.run("wg", "setconf", "wg0", str(config))
    laptop.run("ip", "-6", "address", "add", f"{address}/120", "dev", "wg0", "nodad")
    laptop.run("ip", "link", "set", "wg0", "mtu", "1420", "up")
    laptop.run("ip", "-6", "route", "add", "fdaa::/16", "dev", "wg0")


def test_a_person_reaches_machines_of_the_own_network_on_every_host_and_is_reached(entered: Entered) -> None:
    assert entered.asks(entered.here.address) == str(len(CANARY))
    assert entered.asks(entered.there.address) == str(len(CANARY)), "through the mesh"
    with ExitStack() as stack:
        run(stack, (*entered.laptop.before_it, sys.executable, "-c", SERVE))
        assert entered.here.asks(entered.address) == str(len(CANARY))
        assert entered.there.asks(entered.address) == str(len(CANARY))


def test_a_person_reaches_neither_another_network_nor_the_host(entered: Entered) -> None:
    assert entered.asks(entered.stranger.address, QUIET_S).startswith("none")
    assert entered.stranger.asks(entered.address, within_s=QUIET_S).startswith("none")
    assert entered.asks(str(gateway(MINE)), QUIET_S).startswith("none")
    assert entered.asks(str(network_resolver(MINE)), QUIET_S).startswith("none"), "only its port for names"
    assert entered.asks(entered.here.address) == str(len(CANARY))


def test_a_person_reaches_the_api_in_the_own_network_alone(entered: Entered) -> None:
    assert entered.calls(str(network_resolver(MINE))) == entered.address
    assert entered.resolves(str(network_resolver(MINE)), "_api.internal") == [str(network_resolver(MINE))]
    for other in (network_resolver(THEIRS), RESOLVER, gateway(MINE)):
        assert entered.calls(str(other), QUIET_S).startswith("none")


def test_an_address_that_is_not_the_persons_gets_no_answer(entered: Entered) -> None:
    """The device takes packets from the peer's own address alone."""
    forged = str(machine_prefix(MINE, MachineId("1" * 14))[2])
    entered.laptop.run("ip", "-6", "address", "add", f"{forged}/128", "dev", "wg0", "nodad")
    route = ("ip", "-6", "route", "replace", f"{entered.here.address}/128", "dev", "wg0", "src")
    entered.laptop.run(*route, forged)
    assert entered.asks(entered.here.address, QUIET_S).startswith("none")
    entered.laptop.run(*route, entered.address)
    assert entered.asks(entered.here.address) == str(len(CANARY))
    entered.laptop.run("ip", "-6", "address", "delete", f"{forged}/128", "dev", "wg0")


def test_names_of_the_own_network_are_answered(entered: Entered) -> None:
    server = str(network_resolver(MINE))
    assert entered.resolves(server, "web.internal") == [entered.here.address]
    assert entered.resolves(server, "laptop._peer.internal") == [entered.address]
    assert entered.resolves(server, "_peer.internal", "TXT") == ['"laptop"'], "flyctl's own are not listed"
    assert entered.resolves(server, "_apps.internal", "TXT") == ['"web"']
    assert entered.resolves(server, "secret.internal") == []
    assert entered.resolves("fdaa::3", "web.internal", within_s=QUIET_S) is None, "that is the machines'"
    assert entered.resolves(str(network_resolver(THEIRS)), "secret.internal", within_s=QUIET_S) is None

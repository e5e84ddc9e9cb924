"""What a node's resolver knows of names: values that the worker writes into a file and the resolver reads, so that
names are answered while the daemon is away. No rules of DNS here.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import IPv6Address
from itertools import islice
from pathlib import Path

import msgspec

from hawker.ids import AppName, MachineId, NodeId

RESOLVER = IPv6Address("fdaa::3")
"""The address at which machines ask for names: the same in every private network, and never seen outside of a host."""
API_PORT = 4280
"""The port of `RESOLVER` at which machines reach the node's API, on nodes that answer it to them: TCP, plain HTTP."""
_ADDRESSES = 1024  # of which is remembered whether they are private: each connection asks
FILE, BOUND, _KEPT = "names", "bound", "kept"
MOST_PAIRS, LABEL_BYTES = 128, 63
"""The number of pairs of one machine's metadata that may have names, the first ones, and the most bytes of the key and
the value of those that do: no part of a name is longer."""


class NamedMachine(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A machine that names lead to. `ip` is its private address, which says its network. `listed`: it is in answers
    about its app, else only by its own name. `group` is its process group, `name` what its owner calls it in its
    app."""

    id: MachineId
    app: AppName
    ip: str
    node: NodeId
    region: str
    """The region of the machine's node: a part of some names."""
    started: bool
    """The machine runs; names of an app, a region or a pair of metadata lead to it only then."""
    listed: bool = True
    group: str = ""
    metadata: dict[str, str] = {}
    """Keys and values: `VALUE.KEY.kv._metadata` and the app name the machines that have the pair. Others than
    `named_pairs` lead nowhere."""
    name: str = ""

    @property
    def network_id(self) -> int:
        return network_of_address(self.ip)


class NamedApp(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An app is there also without machines."""

    name: AppName
    network_id: int
    """The number of the app's private network: only machines of that network are told of the app."""


class NamedPeer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A computer that is in a private network over WireGuard. `here`: through this node."""

    name: str
    """The label of the peer in `NAME._peer.internal`."""
    ip: str
    """The private address of the peer, which says its network."""
    here: bool = False

    @property
    def network_id(self) -> int:
        return network_of_address(self.ip)

    @property
    def listed(self) -> bool:
        """flyctl's own are not."""
        return not self.name.startswith("interactive-")


class NamedAddress(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An address of an app, at which an edge answers."""

    app: AppName
    ip: str
    """IPv4 or IPv6, as the world asks for it."""


class ZoneProof(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A TXT record that a certificate authority looks for. `name` is without its last dot."""

    name: str
    """The whole name, `_acme-challenge.` and more."""
    text: str
    """The content of the TXT record."""


class KnownZone(msgspec.Struct, frozen=True, kw_only=True):
    """The platform's own domain. It is answered at `listen` (ADDRESS:PORT). An app without an address of its own in
    `addresses` is reached at `shared`; `name_servers` are where the world asks."""

    domain: str
    """Apps are `APP.` and this, in lower case, without its last dot."""
    listen: tuple[str, ...] = ()
    name_servers: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    addresses: tuple[NamedAddress, ...] = ()
    proofs: tuple[ZoneProof, ...] = ()
    api_hostname: str = ""
    """The host name of the node's API, which leads to `shared`, whichever app has that name; empty: there is none."""


class KnownNames(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known at this node. `upstream` are the servers for names of the world, the host's own when empty.
    `api`: machines reach the node's API."""

    node: NodeId
    region: str
    """The region of this node: the machine that is nearest to another one is found by it."""
    upstream: tuple[str, ...] = ()
    apps: tuple[NamedApp, ...] = ()
    machines: tuple[NamedMachine, ...] = ()
    addresses: tuple[NamedAddress, ...] = ()
    zone: KnownZone | None = None
    peers: tuple[NamedPeer, ...] = ()
    api: bool = False


@lru_cache(_ADDRESSES)
def is_private_address(ip: str) -> bool:
    """Whether this is an address of a private network."""
    try:
        return int(IPv6Address(ip)) >> 112 == 0xFDAA
    except ValueError:
        return False


def network_of_address(ip: str) -> int:
    """The 32 bits of a private address that are its network's."""
    return int(IPv6Address(ip)) >> 80 & 0xFFFFFFFF


def is_outside(address: str, source: str) -> bool:
    """Whether `address` is in a private network that the client at `source` is not in."""
    if not is_private_address(address):
        return False
    return not is_private_address(source) or network_of_address(source) != network_of_address(address)


def group_of(metadata: Mapping[str, str]) -> str:
    """The process group that a machine's metadata says; empty for none."""
    return metadata.get("fly_process_group") or metadata.get("process_group") or ""


def named_pairs(metadata: Mapping[str, str]) -> dict[str, str]:
    """The pairs of a machine's metadata that have names."""
    first = islice(metadata.items(), MOST_PAIRS)
    return {key: value for key, value in first if all(0 < len(each.encode()) <= LABEL_BYTES for each in (key, value))}


def write_names(folder: Path, names: KnownNames, group: int | None = None) -> None:
    """Writes the names into `folder`, whole or not at all, and readable by a group of the host. Raises `OSError`."""
    draft = folder / f"{FILE}.new"
    draft.write_bytes(msgspec.msgpack.encode(names))
    if group is not None:
        os.chown(draft, -1, group)
        draft.chmod(0o640)
    draft.rename(folder / FILE)


@contextmanager
def keeping(folder: Path, group: int | None = None) -> Iterator[None]:
    """A daemon is there that keeps the names, for a resolver that has `group`. Raises `OSError`."""
    kept = os.open(folder / _KEPT, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if group is not None:
            os.fchown(kept, -1, group)
            os.fchmod(kept, 0o660)
        fcntl.flock(kept, fcntl.LOCK_SH)
        yield
    finally:
        os.close(kept)


def is_kept(folder: Path) -> bool:
    """Whether a daemon keeps the names now."""
    try:
        kept = os.open(folder / _KEPT, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(kept)
    return False


def read_names(folder: Path) -> KnownNames | None:
    """The names that a daemon wrote into `folder`; None when there is no such file, or none that can be read."""
    try:
        return msgspec.msgpack.decode((folder / FILE).read_bytes(), type=KnownNames)
    except (OSError, msgspec.DecodeError):
        return None

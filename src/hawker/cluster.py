"""What a node keeps of its cluster, in DATA_DIR/cluster.json: who the cluster is, its keys, where this node is reached
and whom it knew last. Written whole, by a rename, readable by its owner only: who holds a key is one of the cluster.

A damaged file is an error that says what to do; it is never passed over, since a node without it would be alone.
"""

import base64
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hawker.clock import Clock
from hawker.errors import CannotStart
from hawker.ids import NodeId

KEY_BYTES = 32
MAX_KEYS = 4
USUAL_PEER_PORT = 4281
MAX_PEERS = 1000
MAX_FORGOTTEN = 1000
_NUMBERS = 256
_MODE = 0o600


class Keyring(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's keys by their numbers, each 32 bytes in base64. All of them are understood; what is sent is sealed
    with the one of number `primary`. `version` is raised by each change, so that of two the newer is known."""

    keys: dict[str, str]
    """The keys by their numbers, 1 to 4 of them. A number is in digits, 0 to 255; a key is 32 bytes in base64."""
    primary: int
    version: int = 1

    def __post_init__(self) -> None:
        """Raises `ValueError`, without what is in it."""
        if not 1 <= len(self.keys) <= MAX_KEYS:
            raise ValueError(f"a keyring has 1 to {MAX_KEYS} keys, not {len(self.keys)}")
        if not all(number.isdecimal() and int(number) < _NUMBERS for number in self.keys):
            raise ValueError(f"keys have numbers below {_NUMBERS}")
        if not all(map(is_key, self.keys.values())):
            raise ValueError(f"a key is {KEY_BYTES} bytes in base64")
        if str(self.primary) not in self.keys:
            raise ValueError(f"the keyring has no key number {self.primary}")

    @property
    def secrets(self) -> dict[int, bytes]:
        return {int(number): base64.b64decode(key) for number, key in self.keys.items()}


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another node as it was last known. `address` is HOST:PORT of its gossip."""

    node: NodeId
    address: str


def peer_hosts(peers: Iterable[Peer]) -> frozenset[str]:
    """The hosts of `peers`, without the port of their gossip."""
    return frozenset(host_of(peer.address) for peer in peers)


def host_of(address: str) -> str:
    """The host of HOST:PORT, where an IPv6 address stands in brackets."""
    return address.rpartition(":")[0].strip("[]")


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What a node keeps of its cluster. `id` of the cluster is 16 hex characters. `advertise` is the host by which
    others reach this node, `peer_port` the port of its gossip; its peer API has the next one. `forgotten` has the nodes
    that were forgotten and the epoch up to which each is ignored, where an agent keeps the catalog; a catalog of
    Hawker's own keeps that itself."""

    id: str
    keyring: Keyring
    advertise: str
    peer_port: int
    peers: tuple[Peer, ...] = ()
    forgotten: dict[NodeId, int] = {}


def is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == KEY_BYTES
    except ValueError:
        return False


def name_of_key(key: bytes) -> str:
    """8 hex characters that tell a key from others and say nothing of it."""
    return hashlib.sha256(b"hawker key name\0" + key).hexdigest()[:8]


def found_cluster(clock: Clock, *, advertise: str, peer_port: int) -> Cluster:
    """A new cluster that has this node alone, with one new key."""
    keyring = Keyring(keys={"1": base64.b64encode(clock.token_bytes(KEY_BYTES)).decode()}, primary=1)
    return Cluster(id=clock.token_bytes(8).hex(), keyring=keyring, advertise=advertise, peer_port=peer_port)


def read_cluster(file: Path) -> Cluster | None:
    """The cluster that `file` has; None when there is no such file, so the node is in no cluster. Raises `CannotStart`
    for a file that cannot be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Cluster)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise CannotStart(
            f"the data directory {file.parent} is another user's: be that user, or choose another with --data-dir"
        ) from error
    except (OSError, msgspec.DecodeError, ValueError) as error:
        raise CannotStart(
            f"cannot read {file}: {error}; restore it from a backup, or remove it and run"
            " `hawker join` with the address of a living node"
        ) from error


def write_cluster(file: Path, cluster: Cluster) -> None:
    """Writes the cluster into `file`, durable when this returns. Raises `OSError`."""
    write_privately(file, msgspec.json.format(msgspec.json.encode(cluster), indent=2) + b"\n")


def write_privately(file: Path, data: bytes) -> None:
    """Replace a file that only its owner may read; durable when it returns: the file, and its name. Raises
    `OSError`."""
    draft = file.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE), "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    draft.rename(file)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

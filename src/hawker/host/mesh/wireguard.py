"""What a WireGuard device is told and says, as values and as text. Two programs read and write such text: the userspace
implementations at a unix socket (wireguard.com/xplatform), and `wg` for the kernel's own. Pure but for the key's file.

An address leads to one peer: given to another, it leaves the one that had it, in one step. An address that leads
nowhere any more is given to a peer that is then removed, so nobody else's packets wait.
"""

import base64
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hawker.deferred import deferred
from hawker.errors import CannotStart, Unprocessable
from hawker.log import bind
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import x25519
else:
    x25519 = deferred("cryptography.hazmat.primitives.asymmetric.x25519")

KEY_BYTES = 32
_NOBODY = base64.b64encode(hashlib.sha256(b"hawker mesh: nobody").digest()).decode()
"""The key of a peer that there never is."""
_UNKNOWN = "(none)"
_log = bind("hawker.mesh")


class MeshPeer(ValueObject, frozen=True):
    """Another host. `endpoint` is HOST:PORT, an IPv6 address in brackets; empty: it is waited for. `allowed` are the
    networks behind it. `keepalive_s` is the most seconds without a packet, 0 for no such bound."""

    endpoint: str = ""
    allowed: frozenset[str] = frozenset()
    keepalive_s: int = 0


class PeerTraffic(ValueObject, frozen=True):
    """Of one peer. `handshake_at` is Unix time, 0 for never; bytes are those inside the tunnel."""

    handshake_at: float = 0.0
    received_bytes: int = 0
    """Since the device was made."""
    sent_bytes: int = 0
    """Since the device was made."""


@dataclass(frozen=True, slots=True)
class MeshKey:
    """A private key and the public one that belongs to it, in base64."""

    private: str = field(repr=False)
    public: str


@dataclass(frozen=True, slots=True)
class MeshState:
    """What a device has: peers by their public keys. `port` 0: none yet."""

    private: str = field(default="", repr=False)
    port: int = 0
    peers: Mapping[str, MeshPeer] = field(default_factory=dict)
    traffic: Mapping[str, PeerTraffic] = field(default_factory=dict)


def own_key(file: Path) -> MeshKey:
    """The key that the file has; it is made when there is none. Raises `CannotStart`."""
    try:
        private = file.read_bytes() if file.exists() else _make_key(file)
        made = x25519.X25519PrivateKey.from_private_bytes(base64.b64decode(private))
    except (OSError, ValueError) as error:
        raise CannotStart(
            f"{file} is no key of this node's end of the mesh: {error}; remove it for a new one"
        ) from error
    return MeshKey(private.decode().strip(), base64.b64encode(made.public_key().public_bytes_raw()).decode())


def renew_key(file: Path) -> MeshKey:
    """Another key in the place of the one that the file has, which is then gone. Raises `CannotStart`."""
    try:
        _make_key(file)
    except OSError as error:
        raise CannotStart(f"{file} cannot be replaced: {error.strerror}") from error
    return own_key(file)


class KeyFile:
    """The key of a node that is up, whose file somebody may replace. Raises what `own_key` raises."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.key = own_key(file)
        self._stamp = self._look()

    def renewed(self) -> bool:
        """Whether there is another one now, which `key` then is. A file that is no key leaves the one that was there.
        Blocks for as long as the disk does."""
        stamp = self._look()
        if stamp is None or stamp == self._stamp:
            return False
        self._stamp, before = stamp, self.key
        try:
            self.key = own_key(self._file)
        except CannotStart as error:
            _log.error("the mesh keeps its key", extra={"reason": str(error)})
        return self.key != before

    def _look(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


def _make_key(file: Path) -> bytes:
    private = base64.b64encode(x25519.X25519PrivateKey.generate().private_bytes_raw()) + b"\n"
    draft = file.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(private)
        os.fsync(opened.fileno())
    draft.rename(file)
    return private


def is_key(text: str) -> bool:
    """Whether this can be a public key: others' are believed no further. The last digit of 32 bytes in base64 has bits
    that mean nothing: with others than 0 it is another text for the same key, and none here."""
    try:
        made = base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return len(made) == KEY_BYTES and base64.b64encode(made).decode() == text


def peer_key(text: str) -> str:
    """Raises `Unprocessable`."""
    if not is_key(text):
        raise Unprocessable("pubkey: is no public key of WireGuard: 32 bytes in base64, as `wg pubkey` prints them")
    return text


class MeshChange(ValueObject, frozen=True):
    """What makes `after` of `before`. `given` are the addresses that a peer gets, `told` peers whose endpoint or
    keepalive is another; `nowhere` leads to nobody any more; `gone` are peers."""

    given: Mapping[str, frozenset[str]]
    told: frozenset[str]
    nowhere: frozenset[str]
    gone: frozenset[str]

    @property
    def is_none(self) -> bool:
        return not (self.given or self.told or self.nowhere or self.gone)


def difference(before: Mapping[str, MeshPeer], after: Mapping[str, MeshPeer]) -> MeshChange:
    nobody = MeshPeer()
    given = {key: peer.allowed - before.get(key, nobody).allowed for key, peer in after.items()}
    lost = [peer.allowed - after[key].allowed for key, peer in before.items() if key in after]
    return MeshChange(
        given={key: allowed for key, allowed in given.items() if allowed},
        told=frozenset(key for key, peer in after.items() if key not in before or _way(peer) != _way(before[key])),
        nowhere=frozenset[str]().union(*lost).difference(*(peer.allowed for peer in after.values())),
        gone=frozenset(before) - frozenset(after),
    )


def _way(peer: MeshPeer) -> tuple[str, int]:
    return peer.endpoint, peer.keepalive_s


def uapi_identity(private: str, port: int) -> str:
    return f"set=1\nprivate_key={_hex(private)}\nlisten_port={port}\n\n"


def uapi_change(change: MeshChange, after: Mapping[str, MeshPeer]) -> str:
    """One transaction. A peer that goes is removed last, when what is to lead elsewhere does."""
    lines = ["set=1"]
    for key in sorted(change.told | change.given.keys()):
        lines.append(f"public_key={_hex(key)}")
        if key in change.told:
            lines += _uapi_way(after[key])
        lines += [f"allowed_ip={each}" for each in sorted(change.given.get(key, ()))]
    if change.nowhere:
        lines += [f"public_key={_hex(_NOBODY)}", *(f"allowed_ip={each}" for each in sorted(change.nowhere))]
    for key in (*sorted(change.gone), *((_NOBODY,) if change.nowhere else ())):
        lines += [f"public_key={_hex(key)}", "remove=true"]
    return "\n".join(lines) + "\n\n"


def _uapi_way(peer: MeshPeer) -> Iterator[str]:
    if peer.endpoint:
        yield f"endpoint={peer.endpoint}"
    yield f"persistent_keepalive_interval={peer.keepalive_s}"


def read_uapi(text: str) -> MeshState:
    """The answer to `get=1`. Raises `ValueError` for what is none."""
    private, port, key = "", 0, ""
    found: dict[str, dict[str, str]] = {}
    allowed: dict[str, set[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "public_key":
            key = _base64(value)
            found[key], allowed[key] = {}, set()
        elif name == "allowed_ip" and key:
            allowed[key].add(value)
        elif key:
            found[key][name] = value
        elif name == "private_key":
            private = _base64(value)
        elif name == "listen_port":
            port = int(value)
    peers = {
        each: MeshPeer(
            said.get("endpoint", ""), frozenset(allowed[each]), int(said.get("persistent_keepalive_interval", 0))
        )
        for each, said in found.items()
    }
    traffic = {
        each: PeerTraffic(
            float(said.get("last_handshake_time_sec", 0)), int(said.get("rx_bytes", 0)), int(said.get("tx_bytes", 0))
        )
        for each, said in found.items()
    }
    return MeshState(private, port, peers, traffic)


def wg_peers(keys: Iterable[str], after: Mapping[str, MeshPeer]) -> str:
    """What `wg addconf` reads: these peers as they are to be, with all their addresses."""
    return "".join(_wg_peer(key, after[key]) for key in sorted(keys))


def _wg_peer(key: str, peer: MeshPeer) -> str:
    lines = ["[Peer]", f"PublicKey = {key}"]
    lines += [f"AllowedIPs = {', '.join(sorted(peer.allowed))}"] if peer.allowed else []
    lines += [f"Endpoint = {peer.endpoint}"] if peer.endpoint else []
    return "\n".join([*lines, f"PersistentKeepalive = {peer.keepalive_s or 'off'}"]) + "\n"


def read_wg(text: str) -> MeshState:
    """What `wg show NAME dump` says. Raises `ValueError` for what is none."""
    first, *rows = (line.split("\t") for line in text.splitlines())
    private, _, port, _ = first
    peers, traffic = {}, {}
    for key, _, endpoint, allowed, handshake, received, sent, keepalive in rows:
        peers[key] = MeshPeer(
            "" if endpoint == _UNKNOWN else endpoint,
            frozenset(() if allowed == _UNKNOWN else allowed.split(",")),
            0 if keepalive == "off" else int(keepalive),
        )
        traffic[key] = PeerTraffic(float(handshake), int(received), int(sent))
    return MeshState("" if private == _UNKNOWN else private, int(port), peers, traffic)


def _hex(key: str) -> str:
    return base64.b64decode(key).hex()


def _base64(key: str) -> str:
    return base64.b64encode(bytes.fromhex(key)).decode()

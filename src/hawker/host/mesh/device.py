"""The host's end of the tunnels to other hosts: one device of WireGuard, made by the kernel where it knows that, else
by a program, with one interface for all of them.

`HostMesh` makes the device with the first address that leads to another host, takes up one that is there, and makes it
anew when its program ended: all state is the device's, which outlives the daemon. A host's private networks lead to one
device only, so of two nodes in one network namespace the first has it. Root only.
"""

import dataclasses
import errno
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from ipaddress import IPv6Interface
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from hawker.errors import Fault
from hawker.fair.threads import Pool, in_thread
from hawker.host import links
from hawker.host.address import PRIVATE, mesh_name
from hawker.host.mesh.program import ProgramDevice, program_of
from hawker.host.mesh.wireguard import (
    MeshChange,
    MeshKey,
    MeshPeer,
    MeshState,
    read_wg,
    wg_peers,
)
from hawker.host.netlink import NetlinkRequest, NetlinkSocket
from hawker.ids import NodeId
from hawker.value_object import ValueObject

_ANSWERS_WITHIN_S = 5.0
_STARTS_WITHIN_S = 10.0
_MESH = re.compile("hw[0-9a-f]{4}m")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class MeshKind(StrEnum):
    """Who carries the packets."""

    KERNEL = "kernel"
    WIREGUARD_GO = "wireguard-go"


class TunnelDevice(Protocol):
    """A device. Calls block, for a few seconds at most, and raise `OSError` when it does not answer."""

    def read(self) -> MeshState: ...

    def identify(self, key: MeshKey, port: int) -> None:
        """Whose end it is, and at which UDP port it listens."""

    def change(self, change: MeshChange, after: Mapping[str, MeshPeer]) -> None:
        """At once, as far as others see. `after` are all peers as they then are."""


class KernelDevice:
    """The kernel's device, by the program `wg`. It gives a peer all of its addresses anew where one is added."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read(self) -> MeshState:
        return read_wg(self._wg("show", self._name, "dump"))

    def identify(self, key: MeshKey, port: int) -> None:
        words = ("set", self._name, "listen-port", str(port), "private-key", "/dev/stdin")
        self._wg(*words, said=f"{key.private}\n")

    def change(self, change: MeshChange, after: Mapping[str, MeshPeer]) -> None:
        lost = {key for key, peer in self.read().peers.items() if peer.allowed & change.nowhere}
        keys = (change.told | change.given.keys() | lost) & after.keys()
        if keys:
            self._wg("addconf", self._name, "/dev/stdin", said=wg_peers(keys, after))
        if change.gone:
            self._wg("set", self._name, *(word for key in sorted(change.gone) for word in ("peer", key, "remove")))

    def _wg(self, *words: str, said: str = "") -> str:
        try:
            done = subprocess.run(
                ("wg", *words),
                input=said,
                capture_output=True,
                text=True,
                check=False,
                timeout=_ANSWERS_WITHIN_S,
                env={"PATH": _PATH},
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(errno.ETIMEDOUT, "wg does not answer") from error
        if done.returncode != 0:
            raise OSError(errno.EIO, f"wg refuses this: {done.stderr.strip()[:200]}")
        return done.stdout


class MemoryDevice:
    """A device that carries nothing, for tests and simulated hosts."""

    def __init__(self) -> None:
        self._state = MeshState()

    def read(self) -> MeshState:
        return self._state

    def identify(self, key: MeshKey, port: int) -> None:
        self._state = dataclasses.replace(self._state, private=key.private, port=port)

    def change(self, change: MeshChange, after: Mapping[str, MeshPeer]) -> None:
        moved = change.nowhere.union(*change.given.values())
        peers = {
            key: replace(peer, allowed=peer.allowed - moved)
            for key, peer in self._state.peers.items()
            if key not in change.gone
        }
        for key in change.told | change.given.keys():
            before, wanted = peers.get(key, MeshPeer()), after[key]
            allowed = before.allowed | change.given.get(key, frozenset())
            peers[key] = replace(wanted, allowed=allowed) if key in change.told else replace(before, allowed=allowed)
        self._state = dataclasses.replace(self._state, peers=peers)


class OwnDevice(ValueObject, frozen=True):
    """What a device says, and who carries its packets."""

    state: MeshState
    carrier: str
    """`kernel`, or the file of a program; empty where that is not found."""


def device_with(key: MeshKey) -> OwnDevice | None:
    """The device of this host that has this key; None where none does. Raises `OSError`."""
    with NetlinkSocket() as routes:
        found = [link for link in links.links(routes) if _MESH.fullmatch(link.name)]
    for link in found:
        in_kernel = link.kind == links.WIREGUARD
        device = KernelDevice(link.name) if in_kernel else ProgramDevice(link.name)
        with suppress(OSError, ValueError):  # another node's, or one whose program ended
            state = device.read()
            if state.private == key.private:
                return OwnDevice(state, MeshKind.KERNEL if in_kernel else _file_of(link.name))
    return None


def _file_of(device: str) -> str:
    program = program_of(device)
    return "" if program is None else program.file


class HostMesh:
    """`log` is what a program says; `choice` are the kinds that are tried, in this order."""

    def __init__(
        self,
        node_id: NodeId,
        key: MeshKey,
        port: int,
        mtu: int,
        log: Path,
        choice: Sequence[MeshKind] = tuple(MeshKind),
    ) -> None:
        self.name = mesh_name(node_id)
        self._key = key
        self._port = port
        self._mtu = mtu
        self._log = log
        self._choice = choice
        self.kind: MeshKind | None = None

    @property
    def is_there(self) -> bool:
        return links.index_of(self.name) is not None

    def take(self, key: MeshKey) -> None:
        """The device has this key from the next `there` on."""
        self._key = key

    async def there(self) -> TunnelDevice:
        """The device, up, with this node's key and with the route to it. Raises `Fault` that says why there is none."""
        found = await in_thread(Pool.HOST, self._found)
        if found is None:
            self.kind = None
            found = await self._made()
        try:
            await in_thread(Pool.HOST, self._ready, found)
        except OSError as error:
            raise Fault(f"the mesh cannot be used: {error.strerror or error}") from error
        return found

    def _found(self) -> TunnelDevice | None:
        """None for one that does not answer, which is removed."""
        with NetlinkSocket() as routes:
            there = {link.name: link for link in links.links(routes)}
            if self.name not in there:
                return None
            in_kernel = there[self.name].kind == links.WIREGUARD
            device = KernelDevice(self.name) if in_kernel else ProgramDevice(self.name)
            try:
                device.read()
            except (OSError, ValueError):
                routes.apply([links.delete_link(self.name)])
                return None
        self.kind = MeshKind.KERNEL if in_kernel else MeshKind.WIREGUARD_GO
        return device

    async def _made(self) -> TunnelDevice:
        reasons = []
        if other := await in_thread(Pool.HOST, self._another):
            raise Fault(f"another node of this host has the mesh: {other}")
        for kind in self._choice:
            reason = await self._make(kind)
            if not reason:
                self.kind = kind
                return KernelDevice(self.name) if kind is MeshKind.KERNEL else ProgramDevice(self.name)
            reasons.append(f"{kind}: {reason}")
        raise Fault(f"this host has no WireGuard: {'; '.join(reasons)}")

    async def _make(self, kind: MeshKind) -> str:
        """Why there is none of this kind."""
        if kind is MeshKind.KERNEL:
            if shutil.which("wg", path=_PATH) is None:
                return "wg is missing: apt-get install wireguard-tools"
            return await in_thread(Pool.HOST, self._make_in_kernel)
        program = shutil.which(kind, path=_PATH)
        if program is None:
            return "it is missing: apt-get install wireguard-go"
        return await in_thread(Pool.HOST, self._begin, program)

    def _begin(self, program: str) -> str:
        """It returns when the device is there and answers; what it leaves behind goes on by itself."""
        with self._log.open("wb") as log:
            try:
                done = subprocess.run(
                    (program, self.name),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    check=False,
                    timeout=_STARTS_WITHIN_S,
                    cwd="/",
                    env={"PATH": _PATH},
                )
            except subprocess.TimeoutExpired:
                return f"it did not begin within {_STARTS_WITHIN_S:g} s"
        said = self._log.read_text(errors="replace").strip().splitlines() or ["no reason given"]
        return "" if done.returncode == 0 else f"it ended with status {done.returncode}: {said[-1][:200]}"

    def _make_in_kernel(self) -> str:
        try:
            with NetlinkSocket() as routes:
                routes.apply([links.add_wireguard(self.name)])
        except OSError as error:
            return str(error.strerror).lower()
        return ""

    def _another(self) -> str:
        """The device of another node that has the private networks here."""
        with NetlinkSocket() as routes:
            names = [link.name for link in links.links(routes)]
        return next((name for name in names if _MESH.fullmatch(name)), "")

    def _ready(self, mesh: TunnelDevice) -> None:
        state = mesh.read()
        if (state.private, state.port) != (self._key.private, self._port):
            mesh.identify(self._key, self._port)
        index = links.index_of(self.name)
        if index is None:
            raise OSError(errno.ENODEV, "its device went away")
        with NetlinkSocket() as routes:
            routes.apply([links.set_mtu(index, self._mtu)])
            if ways := self._ways(index):
                routes.apply(ways)

    def _ways(self, index: int) -> list[NetlinkRequest]:
        """What is routed to the device."""
        return [links.add_route(IPv6Interface(PRIVATE.with_prefixlen), index)]

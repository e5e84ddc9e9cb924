"""Puts fences in place on the host and looks whether they stand: `fences` says what they are.

All state is the kernel's: the table of rules, and for each bridge whether its packets come by it.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread

from hawker.errors import Fault
from hawker.host import links
from hawker.host.address import bridge_name
from hawker.host.fences import Fence, fence_table, install_fences, mark
from hawker.host.netlink import NETLINK_NETFILTER, NetlinkSocket
from hawker.host.nft_messages import look_up_chain, look_up_table
from hawker.ids import NodeId

_SWITCHES = Path("/proc/sys/net/bridge")  # there once br_netfilter is
_LOAD = ("modprobe", "br_netfilter")
_SYS_NET = Path("/sys/class/net")


class NodeFences:
    """Keeps `worker.fences.HostFences`. Not for two tasks at once."""

    def __init__(self, node_id: NodeId, switches: Path = _SWITCHES, load: Sequence[str] = _LOAD) -> None:
        self._node_id = node_id
        self._table = fence_table(node_id)
        self._switches = switches
        self._load = load

    async def raise_fences(self, wanted: Sequence[Fence]) -> None:
        """Raises `Fault` when the host cannot have them; then what was in force stays in force."""
        if wanted:
            why = await self.no_fences_because()
            if why:
                raise Fault(f"network policies are not in force: {why}")
            await anyio.to_thread.run_sync(self._show_packets, wanted)
        if not await anyio.to_thread.run_sync(self._stand, wanted):
            await install_fences(self._node_id, wanted)

    async def fenced(self, wanted: Sequence[Fence]) -> bool:
        return await anyio.to_thread.run_sync(lambda: self._stand(wanted) and not self._hidden(wanted))

    async def no_fences_because(self) -> str:
        """Loads what is missing, if it can be had. Other bridges of the host go on as before: their packets do not come
        by packet rules all of a sudden."""
        if self._switches.is_dir():
            return ""
        with suppress(FileNotFoundError):
            await anyio.run_process(self._load, check=False)
        if not self._switches.is_dir():
            return "this host's kernel does not show packets within a bridge to packet rules: modprobe br_netfilter"
        for switch in self._switches.glob("bridge-nf-call-*"):
            switch.write_text("0")
        return ""

    def _stand(self, wanted: Sequence[Fence]) -> bool:
        question = look_up_chain(self._table, mark(wanted)) if wanted else look_up_table(self._table)
        try:
            with NetlinkSocket(NETLINK_NETFILTER) as rules:
                rules.ask(question)
        except FileNotFoundError:
            return not wanted
        return bool(wanted)

    def _show_packets(self, wanted: Sequence[Fence]) -> None:
        hidden = self._hidden(wanted)
        indexes = [index for name in hidden if (index := links.index_of(name)) is not None]
        if indexes:
            with NetlinkSocket() as host:
                host.apply([links.show_packets(index) for index in indexes])

    def _hidden(self, wanted: Sequence[Fence]) -> list[str]:
        """Bridges that are there and do not show their packets."""
        names = sorted({bridge_name(self._node_id, fence.network_id) for fence in wanted})
        return [name for name in names if not _shows(name)]


def _shows(bridge: str) -> bool:
    switches = [_SYS_NET / bridge / "bridge" / f"nf_call_{kind}" for kind in ("iptables", "ip6tables")]
    try:
        return all(switch.read_text().strip() == "1" for switch in switches)
    except OSError:
        return True  # the bridge went, or is no bridge of ours

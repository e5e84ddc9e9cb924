"""An edge process of a played host: its end of the worker's feed, what ends it, and the sockets of UDP that the warden
and the kernel would give it.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

import anyio
import msgspec

from hawker.clock import Clock
from hawker.edge.datagram_hops import DatagramGate
from hawker.edge.datagrams import DatagramFlows
from hawker.edge.machine_socket import MachineSocket
from hawker.edge.process import Edge
from hawker.edge.routes import Door
from hawker.edge.worker_link import WorkerLink
from hawker.feed import AllMachines, ToEdge, ToWorker
from hawker.ids import MachineId, NodeId
from hawker.sim.edge.wires import HERE, PROCESS, EdgeLoop, Wires

_NOWHERE = Path("/nonexistent")


class PlayedLink(WorkerLink):
    """The end of a played `edge.sock` that the process `number` has."""

    def __init__(self, clock: Clock, take: "Callable[[ToWorker, PlayedLink], bool]", number: int) -> None:
        super().__init__(_NOWHERE, clock)
        self.number = number
        self.waking: dict[MachineId, int] = {}  # that this process has asked this daemon for: which of their starts
        self._take = take

    def send(self, message: ToWorker) -> bool:
        return self._take(message, self)

    def tell(self, message: ToEdge, edge: Edge) -> None:
        self._hear(message, edge)

    def lose(self) -> None:
        """The daemon is gone."""
        self._hang_up()

    @property
    def kept(self) -> AllMachines:
        """What a new edge process begins with."""
        return msgspec.structs.replace(self._last, machines=tuple(self._known.values()))


class EdgeProcess:
    """Its edge, since when it is there, and what ends it."""

    def __init__(self, edge: Edge, link: PlayedLink, begun_at: float, scope: anyio.CancelScope) -> None:
        self.edge = edge
        self.link = link
        self.begun_at = begun_at
        self.scope = scope


class PlayedMachineSocket(MachineSocket):
    def _connected(self, host: str, port: int) -> socket.socket:
        wires, here = cast(EdgeLoop, asyncio.get_running_loop()).wires, HERE.get()
        wires.expect_life()
        made = wires.datagrams.bind(here, PROCESS.get(), wires.addresses[here], peer=(host, port))
        return cast(socket.socket, made)


class PlayedFlows(DatagramFlows):
    machine_end = PlayedMachineSocket


class PlayedFlowGate(DatagramGate):
    machine_end = PlayedMachineSocket


def open_doors(edge: Edge, wires: Wires, here: tuple[NodeId, int, str], ports: Iterable[int]) -> None:
    """For datagrams, at the address of this process."""
    node, process, address = here
    for port in ports:
        taker = wires.datagrams.bind(node, process, address, port)
        edge.datagrams.open(Door(address, port, udp=True), cast(socket.socket, taker))

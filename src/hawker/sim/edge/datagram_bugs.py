"""The planted bugs of datagrams: what an edge that carries flows gets wrong."""

from hawker.edge.datagram_hops import DatagramHops, _FarEnd
from hawker.edge.datagrams import Flow
from hawker.edge.machine_socket import FlowListener, MachineEnd
from hawker.edge.refusal import ProxyError
from hawker.edge.visits import Visit
from hawker.proof.violation import Invariant as I
from hawker.sim.edge.played_host import EdgeKit
from hawker.sim.edge.played_process import PlayedFlowGate, PlayedFlows, PlayedMachineSocket
from hawker.sim.harness.planted_bug import PlantedBug

_SOON_S = 10.0


class _CountsNoFlows(PlayedFlows):
    """Who has found a machine is not counted there any more."""

    async def _reach(self, flow: Flow) -> tuple[Visit, MachineEnd]:
        visit, machine = await super()._reach(flow)
        self._visits.end(visit)
        return visit, machine

    def ended(self, flow: Flow) -> None:
        flow.visit = None
        super().ended(flow)


class _ForgetsFlows(PlayedFlows):
    """Who says nothing for some seconds has ended."""

    def sweep(self) -> None:
        for flow in list(self._all):
            if flow.heard_at + _SOON_S <= self.now():
                flow.end()
        super().sweep()


class _StaysThere(PlayedMachineSocket):
    """A flow keeps its machine, be that closed."""

    @property
    def goes_on(self) -> bool:
        return not self._closed


class _StayingFlows(PlayedFlows):
    machine_end = _StaysThere


class _StayingFlowGate(PlayedFlowGate):
    machine_end = _StaysThere


class _Deaf:
    """Hears of no end."""

    def __init__(self, listener: FlowListener) -> None:
        self._listener = listener

    def hear(self, data: bytes) -> None:
        self._listener.hear(data)

    def lose(self, why: ProxyError | None) -> None:
        """It goes on."""


class _NeverLoses(DatagramHops):
    """What another host has said to have ended goes on, and so does what went to a host that is lost."""

    async def open(self, visit: Visit, began: float, listener: FlowListener) -> _FarEnd:
        return await super().open(visit, began, _Deaf(listener))


def _plant(name: str, what: str, parts: EdgeKit, *breaks: I) -> PlantedBug[EdgeKit]:
    return PlantedBug(name=name, what=what, kit=parts, breaks=frozenset(breaks))


DATAGRAM_PLANTS: tuple[PlantedBug[EdgeKit], ...] = (
    _plant(
        "flows-uncounted",
        "a flow of datagrams is not counted in its machine",
        EdgeKit(flows=_CountsNoFlows),
        I.HARD_LIMIT,
        I.UNCUT,
    ),
    _plant(
        "flows-forgotten",
        "a flow of datagrams ends, and its machine rests, while its client expects it to last",
        EdgeKit(flows=_ForgetsFlows),
        I.UNCUT,
    ),
    _plant(
        "flow-stays",
        "a flow of datagrams goes on into a machine that was closed",
        EdgeKit(flows=_StayingFlows, flow_gate=_StayingFlowGate),
        I.UNCUT,
    ),
    _plant(
        "flow-never-lost",
        "a flow of datagrams goes on to a host that has ended it, or is lost",
        EdgeKit(flow_hops=_NeverLoses),
        I.SERVED,
    ),
)

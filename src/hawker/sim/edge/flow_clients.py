"""Clients that send datagrams to edges, each from a port of its own, and whether they are answered. A datagram is to be
answered that some machine could take, with nothing in the way, for a while before it was sent.
"""

from collections.abc import Callable, Sequence

from hawker.clock import Clock
from hawker.edge.datagrams import ANSWERED_S
from hawker.ids import AppName, MachineId
from hawker.proof.flow_checks import FlowLedger, SentFlow
from hawker.sim.edge.datagram_wires import PlayedSocket
from hawker.sim.edge.edge_plan import WELL_S
from hawker.sim.edge.played_apps import DATAGRAM_PORTS
from hawker.sim.edge.played_host import PlayedHost
from hawker.sim.edge.wires import CLIENT, NO_EDGE, OUTSIDE, Wires

_WITHIN_S = 3.0
"""A datagram that waits for a machine to start is answered by then."""
_RECOVERS_S = 13.0
"""After a host or a way is lost its flows have ended, and who goes on sending has another machine."""


class FlowClients:
    """Of one run. `blows` are the moments at which something ended machines or ways, `hindered` those at which anything
    befell the run. An app is `willing` when each of its
    machines can be started by whoever asks."""

    def __init__(
        self,
        hosts: Sequence[PlayedHost],
        wires: Wires,
        ledger: FlowLedger,
        clock: Clock,
        blows: Sequence[float],
        hindered: Sequence[float],
        willing: Callable[[str], bool],
        say: Callable[[str], None],
    ) -> None:
        self._hosts = hosts
        self._wires = wires
        self._ledger = ledger
        self._clock = clock
        self._blows = blows
        self._hindered = hindered
        self._willing = willing
        self._say = say
        self._count = self._under_way = 0
        self._lossy_at = float("-inf")

    async def lose_some(self, seconds: float, share: float) -> None:
        self._wires.datagrams.lost = share
        await self._clock.sleep(seconds)
        self._wires.datagrams.lost = 0.0
        self._lossy_at = self._clock.monotonic()

    async def end(self) -> None:
        """Return once all clients have said all, and their flows have ended by silence."""
        self._wires.datagrams.lost = 0.0
        while self._under_way:
            await self._clock.sleep(1.0)
        if self._count:
            await self._clock.sleep(ANSWERED_S)

    async def send(self, host: PlayedHost, app: str, count: int, gap_s: float) -> None:
        """So many datagrams of one flow."""
        self._count, self._under_way = self._count + 1, self._under_way + 1
        flow = SentFlow(id=f"f{self._count}", app=AppName(app))
        self._ledger.sent(flow)
        client = self._wires.datagrams.bind(OUTSIDE, NO_EDGE, CLIENT)
        answered: set[int] = set()
        client.watch(lambda: answered.add(_number_in(client)))
        due: list[tuple[float, int, float, frozenset[tuple[MachineId, int]]]] = []
        sent_at = self._clock.monotonic()
        for number in range(count):
            before, sent_at = sent_at, self._clock.monotonic()
            due.append((sent_at + _WITHIN_S, number, before, self._ready(host, app)))
            client.sendto(f"{flow.id}/{number}".encode(), (host.address, DATAGRAM_PORTS[app]))
            self._judge(flow, host, due, answered)
            await self._clock.sleep(gap_s)
        await self._clock.sleep(_WITHIN_S)
        self._judge(flow, host, due, answered)
        client.close()
        self._under_way -= 1
        self._say(f"{flow.id} {app} by {host.id}: {len(answered)} of {count}")

    def _judge(
        self,
        flow: SentFlow,
        host: PlayedHost,
        due: list[tuple[float, int, float, frozenset[tuple[MachineId, int]]]],
        answered: set[int],
    ) -> None:
        """Those whose time is over."""
        now = self._clock.monotonic()
        while due and due[0][0] <= now:
            _, number, since, ready = due.pop(0)
            calm = not any(at >= since - _RECOVERS_S for at in self._blows) and host.powered
            calm = calm and not any(at >= since - WELL_S for at in (*self._hindered, self._lossy_at))
            calm = calm and not self._wires.datagrams.lost
            able = bool(ready) and ready == self._ready(host, flow.app)
            if calm and number not in answered and (able or (not number and self._willing(flow.app))):
                self._ledger.missed(flow.id, number)

    def _ready(self, host: PlayedHost, app: str) -> frozenset[tuple[MachineId, int]]:
        """Machines that the host reaches; of an app that has limits, or rests, none is sure to take a flow."""
        if app != "talk":
            return frozenset()
        near = [each for each in self._hosts if each.powered and self._wires.reach(host.id, each.id)]
        return frozenset(each for other in near for each in other.ready(app))


def _number_in(client: PlayedSocket) -> int:
    data, _ = client.recvfrom(0)
    return int(data.decode().partition("/")[2])

"""The worker's connections with the edge processes of its host, while there are any: what the worker asks, and the
answers. A machine has its gate in one of them, and what is asked is asked of all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import add
from typing import Any, TypeAlias, TypeVar

import anyio
import msgspec
from anyio.abc import ByteStream

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.feed import (
    AppFigure,
    AskReport,
    CloseMachine,
    EdgeReport,
    ListenState,
    MachineClosed,
    MachineFigure,
    Times,
    ToEdge,
    frame,
)
from hawker.ids import AppName, InstanceId, MachineId
from hawker.route_question import AskedRequest, AskRoute, ExplainedDoor, RouteExplained

EdgeWord: TypeAlias = MachineClosed | EdgeReport | RouteExplained
F = TypeVar("F", AppFigure, MachineFigure)
S = TypeVar("S", AppFigure, MachineFigure, Times)
_REPORT_WITHIN_S, _LOOK_EVERY_S = 2.0, 0.1


class EdgeLink:
    """The connection with one edge process. `hears_parts` as it says itself."""

    hears_parts = False

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._sending = anyio.Lock()

    async def send(self, *messages: ToEdge) -> None:
        """Sends messages to the edge. What cannot be sent need not be: a new connection begins with everything."""
        if messages:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async with self._sending:
                    await self._stream.send(b"".join(map(frame, messages)))


class Unsaid:
    """The news that one process of the edge is to be told: everything, or these machines."""

    def __init__(self) -> None:
        self._whole = False
        self._noted: dict[MachineId, None] = {}
        self._wake = anyio.Event()

    def note(self, machine_id: MachineId) -> None:
        self._noted[machine_id] = None
        self._wake.set()

    def retell(self) -> None:
        self._whole = True
        self._wake.set()

    def take(self) -> tuple[bool, tuple[MachineId, ...]]:
        """Whether it is everything, and else which machines."""
        taken = self._whole, tuple(self._noted)
        self._whole, self._noted, self._wake = False, {}, anyio.Event()
        return taken

    async def wait(self) -> None:
        await self._wake.wait()


class _Call:
    """What was asked. `asked` are those that have not answered yet."""

    def __init__(self, asked: Iterable[EdgeLink]) -> None:
        self.asked = set(asked)
        self.answers: list[EdgeWord] = []
        self.over = anyio.Event()

    def done(self, link: EdgeLink) -> None:
        self.asked.discard(link)
        if not self.asked:
            self.over.set()


class EdgeLine:
    """The connections with the host's edge, one for each of its processes."""

    def __init__(self) -> None:
        self._links: dict[EdgeLink, None] = {}
        self._number = 0
        self._calls: dict[int, _Call] = {}

    @property
    def is_up(self) -> bool:
        return bool(self._links)

    async def close(self, machine_id: MachineId, instance: InstanceId, wait_s: float) -> None:
        """Returns when nobody is in the machine, or comes in, any more; or after `wait_s`, or when there is no edge."""
        asked = partial(CloseMachine, id=machine_id, instance=instance, wait_s=wait_s)
        await self._call(lambda call: asked(call=call), wait_s + 1)

    async def report(self, *, apps: bool = False) -> EdgeReport:
        """The report of all processes together, with the figures of `apps`, if they are wanted. Raises `Unavailable`
        when there is no edge."""
        said = await self.reports(apps=apps)
        if not said:
            raise Unavailable("the edge of this host is not there: it begins with the first machine that needs it")
        return merged(said)

    async def reports(self, *, apps: bool = False) -> list[EdgeReport]:
        """The report of each process, by its number."""
        found = await self._call(lambda call: AskReport(call=call, apps=apps), _REPORT_WITHIN_S)
        return sorted((each for each in found if isinstance(each, EdgeReport)), key=lambda each: each.process)

    async def listens(self, clock: Clock) -> None:
        """Returns once a process of the edge listens somewhere."""
        while not any(not state.refused for report in await self.reports() for state in report.bound):
            await clock.sleep(_LOOK_EVERY_S)

    async def explain(
        self, app: AppName, host: str, port: int, *, tls: bool, udp: bool, request: AskedRequest
    ) -> tuple[ExplainedDoor, ...]:
        """The doors at which the edge would take this request, and what would become of it. Raises `Unavailable` when
        there is no edge, or an older one that does not explain."""
        asked = partial(AskRoute, app=app, host=host, port=port, tls=tls, udp=udp, request=request)
        found = await self._call(lambda call: asked(call=call), _REPORT_WITHIN_S)
        said = [each.doors for each in found if isinstance(each, RouteExplained)]
        if not said:
            raise Unavailable("the edge of this host does not answer: it begins with the first machine that needs it")
        return next(filter(None, said), ())

    def hear(self, message: EdgeWord, link: EdgeLink) -> None:
        waiting = self._calls.get(message.call)
        if waiting is not None and link in waiting.asked:
            waiting.answers.append(message)
            waiting.done(link)

    def connected(self, stream: ByteStream) -> EdgeLink:
        link = EdgeLink(stream)
        self._links[link] = None
        return link

    def lost(self, link: EdgeLink) -> None:
        self._links.pop(link, None)
        for call in self._calls.values():
            call.done(link)

    async def _call(self, message: Callable[[int], ToEdge], within_s: float) -> list[EdgeWord]:
        """What those have answered that are there."""
        if not self._links:
            return []
        self._number += 1
        number, call = self._number, _Call(self._links)
        self._calls[number] = call
        try:
            with anyio.move_on_after(within_s):
                for link in list(self._links):
                    await link.send(message(number))
                await call.over.wait()
        finally:
            del self._calls[number]
        return call.answers


def merged(reports: Sequence[EdgeReport]) -> EdgeReport:
    """The reports of several processes of one host, as if they were one. A door is open where one of them listens."""
    if len(reports) == 1:
        return reports[0]
    doors: dict[tuple[str, int, bool], ListenState] = {}
    for state in (state for report in reports for state in report.bound):
        key = state.address, state.port, state.udp
        if key not in doors or doors[key].refused:
            doors[key] = state
    return EdgeReport(
        call=0,
        bound=tuple(doors[key] for key in sorted(doors)),
        counters=_added(report.counters for report in reports),
        held=sum(report.held for report in reports),
        in_flight=_added(report.in_flight for report in reports),
        apps=_summed(each for report in reports for each in report.apps),
        machines=_summed(each for report in reports for each in report.machines),
    )


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return dict(found)


def _summed(figures: Iterable[F]) -> tuple[F, ...]:
    """Of each app, or machine of an app, one: all numbers are sums, whatever they count."""
    found: dict[tuple[str, str], F] = {}
    for each in figures:
        key = each.app, each.machine if isinstance(each, MachineFigure) else ""
        found[key] = _sum(found[key], each) if key in found else each
    return tuple(found.values())


def _sum(one: S, other: S) -> S:
    return msgspec.structs.replace(
        one, **{name: _plus(getattr(one, name), getattr(other, name)) for name in one.__struct_fields__}
    )


def _plus(one: Any, other: Any) -> Any:
    """Of what a figure has: numbers, counts by name, counts by bound, times, and the names of what it is of."""
    match one:
        case str():
            return one
        case Times():
            return _sum(one, other)
        case dict():
            return {
                name: _plus(one[name], other[name]) if name in one and name in other else one.get(name, other.get(name))
                for name in {**one, **other}
            }
        case tuple():
            return tuple(map(add, one, other)) if one and other else one or other
        case _:
            return one + other

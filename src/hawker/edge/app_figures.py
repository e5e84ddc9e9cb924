"""What each app's clients got from this edge, and what each machine did for them, since it began or since the app was
last forgotten: of as many as were served lately, and no more.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from hawker.feed import RESPONSE_S, AppFigure, MachineFigure, MachineRoute, Times
from hawker.ids import AppName, MachineId

MOST_APPS, MOST_MACHINES = 2000, 4000
MOST_STATUSES = 32
"""The most statuses that are counted one by one for an app, or a machine; its others are counted by their first digit,
as 4xx."""
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Times:
    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(RESPONSE_S) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(RESPONSE_S, seconds)] += 1
        self.seconds += seconds

    def told(self) -> Times:
        return Times(buckets=tuple(self.buckets), seconds=self.seconds)


class _Lately(Generic[K, V]):
    """As many as were asked for lately."""

    def __init__(self, most: int, make: Callable[[], V]) -> None:
        self.all: OrderedDict[K, V] = OrderedDict()
        self._most = most
        self._make = make
        self._last: tuple[K, V] | tuple[None, None] = None, None

    def of(self, key: K) -> V:
        last, found = self._last
        if found is not None and last == key:
            return found
        found = self.all.get(key)
        if found is None:
            found = self.all[key] = self._make()
            if len(self.all) > self._most:
                self.all.popitem(last=False)
        else:
            self.all.move_to_end(key)
        self._last = key, found
        return found


class _App:
    __slots__ = ("answers", "bytes_in", "bytes_out", "connects", "disconnects", "events", "handshakes", "statuses",
                 "tls_errors", "verdicts", "wakes")  # fmt: skip

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.answers, self.wakes = _Times(), _Times()
        self.connects = self.disconnects = self.bytes_in = self.bytes_out = self.tls_errors = 0
        self.handshakes: dict[str, _Times] = {}
        self.events: dict[str, int] = {}
        self.verdicts: dict[str, int] = {}


class _Machine:
    __slots__ = ("answers", "connects", "dials", "disconnects", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.answers, self.dials = _Times(), _Times()
        self.connects = self.disconnects = 0


class AppFigures:
    """The figures of apps and machines, for one event loop. A request that is of no app is not counted here."""

    def __init__(self) -> None:
        self._apps: _Lately[AppName, _App] = _Lately(MOST_APPS, _App)
        self._machines: _Lately[tuple[AppName, MachineId], _Machine] = _Lately(MOST_MACHINES, _Machine)

    def answered(self, app: AppName | None, status: int, seconds: float) -> None:
        """Count an answer whose head is on its way, `seconds` after the head of the request was whole: the upload of a
        body counts, and so does the wait for a machine, a wake of one included. `app` is None where none was found."""
        if app is not None:
            of = self._apps.of(app)
            _count_status(of.statuses, status)
            of.answers.add(seconds)

    def received(self, app: AppName | None, size: int) -> None:
        """Count bytes that came from a client."""
        if app is not None:
            self._apps.of(app).bytes_in += size

    def sent(self, app: AppName | None, size: int) -> None:
        if app is not None:
            self._apps.of(app).bytes_out += size

    def connected(self, app: AppName) -> None:
        """Count a raw connection that has come."""
        self._apps.of(app).connects += 1

    def disconnected(self, app: AppName) -> None:
        """Count a raw connection that has ended, in whatever way."""
        self._apps.of(app).disconnects += 1

    def shaken(self, app: AppName, version: str, seconds: float) -> None:
        """Count a TLS handshake that is done, `seconds` after the connection came."""
        handshakes = self._apps.of(app).handshakes
        times = handshakes.get(version)
        if times is None:
            times = handshakes[version] = _Times()
        times.add(seconds)

    def not_shaken(self, app: AppName) -> None:
        self._apps.of(app).tls_errors += 1

    def woken(self, app: AppName, seconds: float) -> None:
        self._apps.of(app).wakes.add(seconds)

    def event(self, app: AppName, name: str) -> None:
        """Count an event that is counted for the host, too: the names of events are ours."""
        _count(self._apps.of(app).events, name)

    def verdict(self, app: AppName, name: str) -> None:
        """Count what the gate of another host said to a request."""
        _count(self._apps.of(app).verdicts, name)

    def machine_answered(self, machine: MachineRoute, status: int, seconds: float) -> None:
        """Count an answer of a machine, whose head came `seconds` after the machine was asked."""
        of = self._machines.of((machine.app, machine.id))
        _count_status(of.statuses, status)
        of.answers.add(seconds)

    def machine_dialled(self, machine: MachineRoute, seconds: float) -> None:
        self._machines.of((machine.app, machine.id)).dials.add(seconds)

    def machine_connected(self, machine: MachineRoute) -> None:
        """Count a raw connection that leads to the machine."""
        self._machines.of((machine.app, machine.id)).connects += 1

    def machine_disconnected(self, machine: MachineRoute) -> None:
        self._machines.of((machine.app, machine.id)).disconnects += 1

    def apps(self, held: Mapping[str, int]) -> tuple[AppFigure, ...]:
        """The figures of all apps. `held` is how many requests wait for a machine, by app."""
        for app in held:
            self._apps.of(AppName(app))
        return tuple(
            AppFigure(
                app=app,
                statuses=_named(of.statuses),
                buckets=tuple(of.answers.buckets),
                seconds=of.answers.seconds,
                connects=of.connects,
                disconnects=of.disconnects,
                bytes_in=of.bytes_in,
                bytes_out=of.bytes_out,
                handshakes={version: times.told() for version, times in of.handshakes.items()},
                tls_errors=of.tls_errors,
                wakes=of.wakes.told(),
                events=dict(of.events),
                verdicts=dict(of.verdicts),
                held=held.get(app, 0),
            )
            for app, of in self._apps.all.items()
        )

    def machines(self) -> tuple[MachineFigure, ...]:
        return tuple(
            MachineFigure(
                app=app,
                machine=machine,
                statuses=_named(of.statuses),
                answers=of.answers.told(),
                dials=of.dials.told(),
                connects=of.connects,
                disconnects=of.disconnects,
            )
            for (app, machine), of in self._machines.all.items()
        )


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


def _count_status(counts: dict[int, int], status: int) -> None:
    """An app may answer with whatever number it likes: beyond some it is counted below zero, by its first digit."""
    if status not in counts and len(counts) >= MOST_STATUSES:
        status = -int(str(status)[0])
    counts[status] = counts.get(status, 0) + 1


def _named(counts: dict[int, int]) -> dict[str, int]:
    return {str(status) if status >= 0 else f"{-status}xx": count for status, count in counts.items()}

"""What each app's clients got from this edge, since it began or since the app was last forgotten: of as many apps as
were served lately, and no more.
"""

from bisect import bisect_left
from collections import OrderedDict

from hawker.feed import RESPONSE_S, AppFigure
from hawker.ids import AppName

MOST_APPS = 2000


class _Figures:
    __slots__ = ("buckets", "connects", "seconds", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.buckets = [0] * (len(RESPONSE_S) + 1)
        self.seconds = 0.0
        self.connects = 0


class AppFigures:
    """For one event loop."""

    def __init__(self) -> None:
        self._apps: OrderedDict[AppName, _Figures] = OrderedDict()

    def answered(self, app: AppName | None, status: int, seconds: float) -> None:
        """The head of an answer is on its way, `seconds` after the head of the request was whole: the upload of a body
        counts, and so does the wait for a machine, a wake of one included. `app` is None where none was found."""
        if app is not None:
            of = self._of(app)
            of.statuses[status] = of.statuses.get(status, 0) + 1
            of.buckets[bisect_left(RESPONSE_S, seconds)] += 1
            of.seconds += seconds

    def connected(self, app: AppName) -> None:
        """A raw connection has come."""
        self._of(app).connects += 1

    def report(self) -> tuple[AppFigure, ...]:
        return tuple(
            AppFigure(
                app=app,
                statuses={str(status): count for status, count in of.statuses.items()},
                buckets=tuple(of.buckets),
                seconds=of.seconds,
                connects=of.connects,
            )
            for app, of in self._apps.items()
        )

    def _of(self, app: AppName) -> _Figures:
        found = self._apps.get(app)
        if found is None:
            found = self._apps[app] = _Figures()
            if len(self._apps) > MOST_APPS:
                self._apps.popitem(last=False)
        else:
            self._apps.move_to_end(app)
        return found

"""What keeps a late call of an earlier coordinator from changing a machine: each node remembers the greatest term of
each app's deploys that it was told of, and refuses what carries a smaller one, however late it comes.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from hawker.api.contract.deploy import ANNOUNCE_TERM, AnnounceTermRequest, RegisterParams
from hawker.api.contract.machine import DELETE_MACHINE, UPDATE_MACHINE
from hawker.api.contract.machine_operation import CORDON_MACHINE, START_MACHINE, STOP_MACHINE, UNCORDON_MACHINE
from hawker.api.handlers import Handlers, answers
from hawker.api.route import Call, NoQuery
from hawker.clock import Clock
from hawker.errors import BadRequest, WrongState
from hawker.record.app import APPS
from hawker.record.deploy import DEPLOY_TERMS, DeployTermRecord
from hawker.store.contract import Store, Tx

_Term: TypeAlias = tuple[int, int]
"""A release's version and a term of its deploy."""
GUARDED = (UPDATE_MACHINE, DELETE_MACHINE, START_MACHINE, STOP_MACHINE, CORDON_MACHINE, UNCORDON_MACHINE)
_LOOK_S = 0.02
SUPERSEDED = "deploy superseded: another node coordinates it, or a later one"


def written_term(version: int, term: int) -> str:
    return f"{version}/{term}"


class TermFence:
    """`guard` stands before the handlers of what changes a machine."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._under_way: Counter[tuple[str, _Term]] = Counter()

    def stand_before(self, handlers: Handlers) -> None:
        handlers.add(self)
        for route in GUARDED:
            handlers.wrap(route, self.guard)

    async def guard(self, call: Call[Any, Any, Any], answer: Callable[[Any], Awaitable[Any]]) -> Any:
        """Lets a call through, unless it is of an earlier term. Raises `WrongState` for a call of an earlier term."""
        if call.deploy_term is None:
            return await answer(call)
        record, term = self._store.get(APPS, call.params.app_name), _read(call.deploy_term)
        app = call.params.app_name if record is None else record.id
        if term < self._greatest(app):
            raise WrongState(SUPERSEDED)
        self._under_way[app, term] += 1
        try:
            return await answer(call)
        finally:
            self._under_way[app, term] -= 1
            if not self._under_way[app, term]:
                del self._under_way[app, term]

    @answers(ANNOUNCE_TERM)
    async def announce(self, call: Call[RegisterParams, NoQuery, AnnounceTermRequest]) -> None:
        """Returns once nothing of an earlier term is under way here."""
        app, term = call.params.app_id, (call.params.number, call.body.term)

        def apply(tx: Tx) -> None:
            there = tx.get(DEPLOY_TERMS, app)
            if there is None or (there.version, there.term) < term:
                tx.put(DEPLOY_TERMS, app, DeployTermRecord(version=term[0], term=term[1]))

        if self._greatest(app) < term:
            await self._store.write(apply)
        while any(of == app and earlier < term for of, earlier in self._under_way):
            await self._clock.sleep(_LOOK_S)

    def _greatest(self, app: str) -> _Term:
        there = self._store.get(DEPLOY_TERMS, app)
        return (0, 0) if there is None else (there.version, there.term)


def _read(text: str) -> _Term:
    version, _, term = text.partition("/")
    if not (version.isdecimal() and term.isdecimal() and len(text) <= 30):
        raise BadRequest("hawker-deploy-term: it is VERSION/TERM")
    return int(version), int(term)

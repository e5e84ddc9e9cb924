"""Answers with a machine's history: from the store while that has it, else from the archive."""

from hawker.api.contract.history import MACHINE_HISTORY, HistoryParams, Kept, MachineHistory
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.archive.archive import Archive
from hawker.archive.history import History
from hawker.errors import NotFound
from hawker.history.machine_history import answer, live_history
from hawker.ids import MachineId
from hawker.permission import Action, Attempt
from hawker.record.app import APPS
from hawker.store.contract import Store


class HistoryHandlers:
    def __init__(self, store: Store, archive: Archive | None) -> None:
        self._store = store
        self._archive = archive

    def bind(self, handlers: Handlers) -> None:
        handlers.on(MACHINE_HISTORY, self.tell)

    async def tell(self, call: Call[HistoryParams, NoQuery, None]) -> MachineHistory:
        history, kept = await self._find(call.params.machine_id)
        if history is None or not call.grant.permits(self._attempt(history)):
            raise NotFound("machine not found")
        return answer(history, kept)

    async def _find(self, machine_id: str) -> tuple[History | None, Kept]:
        archive = self._archive
        with self._store.snapshot() as reader:
            history = live_history(reader, MachineId(machine_id))
        if history is not None or archive is None:
            return history, Kept.NODE
        return await archive.read(machine_id), Kept.ARCHIVE

    def _attempt(self, history: History) -> Attempt:
        """Whoever may read the app may read its machines' histories; not those of an earlier app of the same name,
        which may have been somebody else's: these take someone who may read the whole node."""
        machine = history.machine
        app = self._store.get(APPS, machine.app)
        if app is None or app.created_at > machine.created_at.timestamp():
            return Attempt(Action.READ)
        return Attempt(Action.READ, app=machine.app, machine=machine.id)

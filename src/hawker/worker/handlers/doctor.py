"""Answers to operators: what is wrong on the node, mended on request, and a copy of its store."""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import anyio
import anyio.to_thread

from hawker.api.contract.doctor import (
    BACK_UP,
    LIST_FINDINGS,
    REPAIR_FINDINGS,
    BackupPart,
    FindingInfo,
    FindingList,
    RepairRequest,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.ids import NodeId
from hawker.record.node import COPY, CopyRecord
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.worker.handlers.node import VERSION
from hawker.worker.reconcile import Finding, Kind, Mended, Mender, Reconciler

_CHUNK_BYTES = 256 * 1024
_FILE = "backup.db"


class DoctorHandlers:
    """`wrong_clocks` are nodes of the fleet, and what is wrong with the clock of each."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        reconciler: Reconciler,
        wrong_clocks: Callable[[], Iterable[tuple[NodeId, str]]],
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._wrong_clocks = wrong_clocks
        self._reconciler = reconciler
        self._one_backup = anyio.Lock()

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_FINDINGS, self.find)
        handlers.on(REPAIR_FINDINGS, self.repair)
        handlers.stream(BACK_UP, self.back_up)

    async def find(self, call: Call[NoParams, NoQuery, None]) -> FindingList:
        try:
            found = await self._reconciler.find()
        except OSError as error:
            raise Unavailable(f"the host cannot be looked at now: {error}") from error
        return FindingList(findings=tuple(map(_info, (*found, *self._clocks()))))

    async def repair(self, call: Call[NoParams, NoQuery, RepairRequest]) -> FindingList:
        menders = {Mender.NODE, Mender.OPERATOR} | ({Mender.FORCE} if call.body.end_foreign else set())
        try:
            mended = await self._reconciler.mend(frozenset(menders))
        except OSError as error:
            raise Unavailable(f"the host cannot be looked at now: {error}") from error
        left = (_info(finding, "left") for finding in self._clocks())
        return FindingList(findings=(*map(_outcome, mended), *left))

    def _clocks(self) -> list[Finding]:
        """What the fleet tells of wrong clocks; none can be set from here."""
        return [Finding(Kind.WRONG_CLOCK, node, detail) for node, detail in self._wrong_clocks()]

    async def back_up(self, call: Call[NoParams, NoQuery, None]) -> AsyncIterator[BackupPart]:
        return self._parts_of_copy()

    async def _parts_of_copy(self) -> AsyncIterator[BackupPart]:
        """One at a time, because all go through one file. A crash leaves it to the next backup to write over it."""
        file, mark = self._settings.data_dir / _FILE, CopyRecord(taken_at=self._clock.now(), version=VERSION)
        async with self._one_backup:
            try:
                await self._store.backup(file, lambda tx: tx.put(COPY, "self", mark))
                async for part in _read(file):
                    yield part
            finally:
                file.unlink(missing_ok=True)


async def _read(file: Path) -> AsyncIterator[BackupPart]:
    digest, size = hashlib.sha256(), 0
    async with await anyio.open_file(file, "rb") as opened:
        while chunk := await opened.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            yield BackupPart(data=chunk)
    yield BackupPart(size_bytes=size, sha256=digest.hexdigest())


def _info(finding: Finding, outcome: str | None = None, error: str | None = None) -> FindingInfo:
    return FindingInfo(
        kind=finding.kind.value,
        about=finding.about,
        detail=finding.detail,
        repair=finding.repair.text,
        by=finding.repair.by.value,
        outcome=outcome,
        error=error,
    )


def _outcome(mended: Mended) -> FindingInfo:
    if mended.error is not None:
        return _info(mended.finding, "failed", mended.error)
    return _info(mended.finding, "mended" if mended.tried else "left")

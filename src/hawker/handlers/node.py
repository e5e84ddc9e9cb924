"""Answers about the node and its region, and to operators: what is wrong on the node, mended on request, and a copy of
its store.
"""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
import msgspec

from hawker.api.contract.body import instant
from hawker.api.contract.node import (
    BACK_UP,
    HEALTH,
    LIST_FINDINGS,
    LIST_REGIONS,
    NODE_INFO,
    REPAIR_FINDINGS,
    Amounts,
    BackupPart,
    DriverInfo,
    FindingInfo,
    FindingList,
    Health,
    HostCapacity,
    NodeInfo,
    RegionList,
    RepairRequest,
    region_list,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.clock import Clock
from hawker.errors import CannotStart, Unavailable
from hawker.fair.threads import PoolProbe
from hawker.feed import API_APP
from hawker.ids import NodeId
from hawker.node import Capacity
from hawker.record.machine import MACHINES, counted, taken
from hawker.record.node import COPY, CopyRecord, NodeRecord, used
from hawker.runtime.saved_memory import SavedMemories
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.value_object import ValueObject
from hawker.version import VERSION
from hawker.worker.assembly import DriverVerdicts
from hawker.worker.edge_line import EdgeLine
from hawker.worker.reconcile import Finding, Kind, Mended, Mender, Reconciler


class NodeHandlers:
    def __init__(self, node: NodeRecord, info: "OwnInfo", clock: Clock) -> None:
        self._node = node
        self._probe = PoolProbe(clock)
        self._info = info

    def bind(self, handlers: Handlers) -> None:
        handlers.on(HEALTH, self.health)
        handlers.on(NODE_INFO, self.info)
        handlers.on(LIST_REGIONS, self.regions)

    async def health(self, call: Call[NoParams, NoQuery, None]) -> Health:
        await self._probe.check()
        return Health(status="ok", version=VERSION)

    async def info(self, call: Call[NoParams, NoQuery, None]) -> NodeInfo:
        return await self._info.whole()

    async def regions(self, call: Call[NoParams, NoQuery, None]) -> RegionList:
        """The region of this node."""
        return region_list((self._node.region,), self._node.region)


class OwnInfo(ValueObject, frozen=True, kw_only=True):
    """The facts of what the node is, has and holds when asked. `started_at` is Unix seconds, `edge_processes` 1 to
    8."""

    node: NodeRecord
    store: Store
    driver: str
    """The name of the driver that runs machines here."""
    drivers: DriverVerdicts
    room: Callable[[], Capacity]
    started_at: float
    memories: SavedMemories | None = None
    edge_processes: int = 1

    def __call__(self) -> NodeInfo:
        """All but what was found of the drivers."""
        there, held, given = self.room(), used(self.store), taken(self.store)
        return NodeInfo(
            id=self.node.id,
            region=self.node.region,
            version=VERSION,
            driver=self.driver,
            started_at=instant(self.started_at),
            capacity=HostCapacity(
                cpus=there.cpus,
                memory_mb=there.memory_mib,
                disk_mb=there.disk_mib,
                shared_cpu_ratio=there.shared_ratio,
                gpus=counted(there.gpus),
            ),
            used=Amounts(
                shared_cpus=held.shared_cpus,
                performance_cpus=held.performance_cpus,
                memory_mb=held.memory_mib,
                disk_mb=held.disk_mib,
                gpus=counted(gpu for gpu in there.gpus if gpu.address in given),
            ),
            machines=dict(Counter(str(record.state) for _, record in self.store.scan(MACHINES))),
            edge_processes=self.edge_processes,
        )

    async def whole(self) -> NodeInfo:
        """Looks at the drivers, if nobody has asked yet."""
        drivers = tuple(
            DriverInfo(name=each.name, usable=each.usable, reason=each.reason, chosen=each.chosen)
            for each in await self.drivers()
        )
        if self.memories is None:
            return msgspec.structs.replace(self(), drivers=drivers)
        try:
            by = await self.memories.resumes()
        except CannotStart:  # its program is gone, and it resumes nothing
            return msgspec.structs.replace(self(), drivers=drivers)
        return msgspec.structs.replace(self(), drivers=drivers, resumes=by.vmm, cpu_model=by.cpu_model)


_CHUNK_BYTES = 256 * 1024
_FILE = "backup.db"


AgentFindings: TypeAlias = Callable[[], Awaitable[Sequence[str]]]
"""The troubles of an agent that keeps the catalog, in words for people. Bounded in time; raises nothing."""


class DoctorHandlers:
    """`wrong_clocks` are nodes of the fleet, and what is wrong with the clock of each; `notices` are what the host
    itself shows, which nobody here can mend; `edge` is the line to the host's edge."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        reconciler: Reconciler,
        wrong_clocks: Callable[[], Iterable[tuple[NodeId, str]]],
        notices: Callable[[], Iterable[Finding]],
        edge: EdgeLine,
        agent_findings: AgentFindings | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._wrong_clocks, self._notices, self._agent_findings = wrong_clocks, notices, agent_findings
        self._reconciler, self._edge = reconciler, edge
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
        return FindingList(findings=tuple(map(_info, (*found, *await self._told()))))

    async def repair(self, call: Call[NoParams, NoQuery, RepairRequest]) -> FindingList:
        menders = {Mender.NODE, Mender.OPERATOR} | ({Mender.FORCE} if call.body.end_foreign else set())
        try:
            mended = await self._reconciler.mend(frozenset(menders))
        except OSError as error:
            raise Unavailable(f"the host cannot be looked at now: {error}") from error
        left = (_info(finding, "left") for finding in await self._told())
        return FindingList(findings=(*map(_outcome, mended), *left))

    async def _told(self) -> list[Finding]:
        """What cannot be mended from here: the host's own matters, wrong clocks of the fleet, the catalog's agent."""
        clocks = [Finding(Kind.WRONG_CLOCK, node, detail) for node, detail in self._wrong_clocks()]
        agent = await self._agent_findings() if self._agent_findings is not None else ()
        agents = (Finding(Kind.CATALOG_AGENT, "catalog", detail) for detail in agent)
        return [*self._notices(), *clocks, *agents, *await self._unreached()]

    async def _unreached(self) -> list[Finding]:
        """Where the edge should bring calls of the API from, and cannot."""
        name = self._settings.api_hostname
        if name is None:
            return []
        try:
            states = (await self._edge.report()).bound
        except Unavailable as error:
            return [Finding(Kind.UNREACHED_API, name, str(error))]
        shut = (state for state in states if state.app == API_APP and state.refused)
        return [Finding(Kind.UNREACHED_API, name, f"{each.address} port {each.port}: {each.refused}") for each in shut]

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

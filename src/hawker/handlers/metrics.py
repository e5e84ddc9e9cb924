"""Answers Prometheus: what the node counted as it went, and what it has now, which is read when it is asked."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from anyio.lowlevel import checkpoint

from hawker.api.contract.node import EDGE_METRICS, MACHINE_METRICS, METRICS
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.archive.archive import Archive
from hawker.catalog.http.service import Vitals
from hawker.fair.threads import Pool, in_thread
from hawker.feed import EdgeReport
from hawker.fsm.run import ENDED
from hawker.fsm.run import State as RunState
from hawker.fsm.runner import Runner
from hawker.gossip.contract import Fate, Member
from hawker.history.machine_history import histories_waiting
from hawker.host.packet_counts import TrackedConnections, connection_table
from hawker.logs.machine_logs import MachineLogs
from hawker.machine import State
from hawker.node import Capacity
from hawker.observe.edge_page import edge_page
from hawker.observe.metrics import MetricsRegistry
from hawker.record.machine import MACHINES
from hawker.store.contract import Bucket, Store
from hawker.worker.edge_line import EdgeLine, merged
from hawker.worker.lifecycle.host_adapters import Networks
from hawker.worker.scrape import Scraper
from hawker.worker.table import MachineTable

_MIB = 1 << 20
_PAGE = 500


class _StateOnly(msgspec.Struct, frozen=True, kw_only=True):
    """All of a machine's record that is read here; with 5,000 of them, decoding the rest would hold up the loop."""

    state: State


_STATES = Bucket(MACHINES.name, _StateOnly)


class MeasuredFleet(Protocol):
    """The figures of a fleet that are measured."""

    @property
    def members(self) -> Sequence[Member]: ...

    @property
    def vitals(self) -> Callable[[], Vitals | None]:
        """The state of the catalog's replication; None where an agent keeps the catalog."""


class MetricsHandlers:
    """`fleet` is None on a node that is alone."""

    def __init__(
        self,
        store: Store,
        table: MachineTable,
        archive: Archive | None,
        runner: Runner[Any],
        room: Callable[[], Capacity],
        metrics: MetricsRegistry,
        scraper: Scraper,
        fleet: MeasuredFleet | None,
        networks: Networks | None,
        edge: EdgeLine,
        logs: MachineLogs | None,
        connections: Callable[[], TrackedConnections | None] = connection_table,
    ) -> None:
        self._store = store
        self._table = table
        self._archive = archive
        self._runner = runner
        self._room = room
        self._scraper = scraper
        self._fleet = fleet
        self._networks = networks
        self._edge = edge
        self._logs = logs
        self._connections = connections
        self._metrics = metrics

    def bind(self, handlers: Handlers) -> None:
        handlers.on(METRICS, self.metrics)
        handlers.on(MACHINE_METRICS, self.machines)
        handlers.on(EDGE_METRICS, self.edge)

    async def metrics(self, call: Call[NoParams, NoQuery, None]) -> str:
        """Thousands of lines take the text's library a tenth of a second: in a thread, so that the loop goes on."""
        await self._read_machines()
        self._read_capacity()
        await self._read_packets()
        await self._read_edge()
        self._read_logs()
        self._read_runs()
        self._read_fleet()
        return await in_thread(Pool.PAGES, self._metrics.exposition)

    async def machines(self, call: Call[NoParams, NoQuery, None]) -> str:
        return await self._scraper.page()

    async def edge(self, call: Call[NoParams, NoQuery, None]) -> str:
        """No app, where no machine has needed an edge."""
        report = await self._edge.report(apps=True) if self._edge.is_up else EdgeReport(call=0)
        found = (self._store.get(MACHINES, machine_id) for machine_id in report.in_flight)
        apps = {record.id: record.app for record in found if record is not None}
        return await in_thread(Pool.PAGES, edge_page, report, apps)

    async def _read_machines(self) -> None:
        """In pages, between which the loop turns."""
        store, counted, after = self._store, Counter[State](), ""
        while page := list(store.scan(_STATES, after=after, limit=_PAGE)):
            counted.update(record.state for _, record in page)
            after, _ = page[-1]
            await checkpoint()
        for state in State:
            self._metrics.node.machines.labels(state.value).set(counted[state])

    def _read_capacity(self) -> None:
        node, room = self._metrics.node, self._room()
        used = self._table.used(self._store)
        node.cpus.labels("performance").set(room.cpus)
        node.cpus.labels("shared").set(int(room.cpus * room.shared_ratio))
        node.cpus_used.labels("performance").set(used.performance_cpus)
        node.cpus_used.labels("shared").set(used.shared_cpus)
        node.memory.set(room.memory_mib * _MIB)
        node.memory_used.set(used.memory_mib * _MIB)
        node.disk.set(room.disk_mib * _MIB)
        node.disk_used.set(used.disk_mib * _MIB)
        node.histories.set(histories_waiting(self._store) if self._archive else 0)

    async def _read_packets(self) -> None:
        node, table = self._metrics.node, self._connections()
        if table is not None:
            node.connections.set(table.entries)
            node.most_connections.set(table.most)
        if self._networks is not None:
            for reason, packets in (await self._networks.dropped()).items():
                node.dropped.labels(reason).set(packets)

    async def _read_edge(self) -> None:
        """Nothing, where no machine has needed one."""
        if not self._edge.is_up:
            return
        node, said = self._metrics.node, await self._edge.reports()
        if not said:
            return
        report = merged(said)
        node.edge_in_flight.set(sum(report.in_flight.values()))
        node.edge_held.set(report.held)
        for event, count in report.counters.items():
            node.edge_events.labels(event).set(count)
        for each in said if len(said) > 1 else ():
            for event, count in each.counters.items():
                node.edge_process_events.labels(str(each.process), event).set(count)

    def _read_logs(self) -> None:
        if self._logs is not None:
            for event, count in self._logs.counts.items():
                self._metrics.node.log_lines.labels(event).set(count)

    def _read_runs(self) -> None:
        runs, runner = self._metrics.runs, self._runner
        opened = runner.open_states()
        for state in RunState:
            if state not in ENDED:
                runs.open.labels(state.value).set(opened[state])
        for queue in runner.queues():
            runs.queue_limit.labels(queue.name).set(queue.limit)
            runs.queue_active.labels(queue.name).set(queue.active)
            runs.queue_waiting.labels(queue.name).set(queue.waiting)

    def _read_fleet(self) -> None:
        fleet, metrics = self._fleet, self._metrics.fleet
        if fleet is None:
            return
        fates = Counter(member.fate for member in fleet.members)
        for fate in Fate:
            metrics.nodes.labels(fate.value).set(fates[fate])
        vitals = fleet.vitals()
        if vitals is not None:
            metrics.gaps.set(vitals.gaps)
            metrics.queued.set(vitals.queue_size)
            metrics.lag.set(vitals.p99_lag or 0.0)

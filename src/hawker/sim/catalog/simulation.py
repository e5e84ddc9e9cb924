"""One seed: a fleet, its faults, and whether all that must hold did. The first thing that did not is the finding.

At any time, what the engine believes is what is on disk; queues are bounded; a replica of a stream is as its owner was
at that very version; who follows the changes by their keys sees what is there. At rest, replicas of a stream are alike,
and as their owner if it is up. (The five invariants of Corrosion's own tests, and the order.)
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from hawker.catalog.change import Position, Scope, Value
from hawker.catalog.contract import Committed
from hawker.catalog.inbound import MAX_READY, TXS
from hawker.catalog.jobs import Job, JobResult, Renew
from hawker.catalog.memory_storage import Key, MemoryStorage
from hawker.clock import ManualClock
from hawker.ids import NodeId
from hawker.sim.catalog.faults import CatalogFaults
from hawker.sim.catalog.host import (
    SOUND_CATALOG,
    CatalogDisk,
    CatalogFileDisk,
    CatalogHost,
    CatalogKit,
    CatalogMemoryDisk,
    Content,
)
from hawker.sim.catalog.network import FAULTS_S, CatalogNetwork, CatalogPlan, HostClock, draw
from hawker.sim.harness.plan import Chance
from hawker.value_object import ValueObject

MIRROR_EVERY = 16


class InvariantBroken(Exception):
    """Something that must hold did not."""


class Oracle:
    """`strict`: streams are never sent in parts, so the order can be checked at any time."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._said: dict[tuple[NodeId, Scope, int], dict[int, Content]] = {}
        self._mirrors: dict[NodeId, tuple[int, dict[Key, tuple[Value, ...]]]] = {}
        self._steps = 0
        self.checked = 0

    def look(self, host: CatalogHost, what: Job | Committed, done: JobResult | None) -> None:
        """After each job and each commit of a host."""
        if isinstance(what, Committed):
            for tx in what.txs:
                self._note(host, tx.scope, tx.epoch, tx.version)
        elif done is not None:
            if isinstance(what, Renew):
                for (_, scope), position in done.positions.items():
                    self._note(host, scope, position.epoch, position.applied)
            for (origin, scope), position in done.positions.items():
                self._check_books(host, origin, scope, position)
                if self._strict:
                    self._check_order(host, origin, scope, position)
        self._follow(host, what, done)
        if host.engine.queued > MAX_READY + TXS:
            raise InvariantBroken(f"{host.node} has {host.engine.queued} changes waiting")

    def _note(self, host: CatalogHost, scope: Scope, epoch: int, version: int) -> None:
        said = self._said.setdefault((host.node, scope, epoch), {})
        said[version] = host.disk.content(host.node, scope)

    def _check_books(self, host: CatalogHost, origin: NodeId, scope: Scope, position: Position) -> None:
        believed = host.engine.position(scope, origin)
        if believed != position:
            raise InvariantBroken(
                f"{host.node} believes that it has {origin} at {believed}, and the disk has {position}"
            )

    def _check_order(self, host: CatalogHost, origin: NodeId, scope: Scope, position: Position) -> None:
        if position.applied < 0 or position.epoch == 0:
            return
        said = self._said.get((origin, scope, position.epoch), {})
        if position.applied not in said:
            raise InvariantBroken(f"{host.node} has {origin} at {position}, which it never said")
        self.checked += 1
        gap = _differs(host.disk.content(origin, scope), said[position.applied])
        if gap:
            raise InvariantBroken(f"{host.node} has {origin} at {position}, and its {gap} was never like that")

    def _follow(self, host: CatalogHost, what: Job | Committed, done: JobResult | None) -> None:
        """A reader that looks again only at what it is told of."""
        storage = host.disk.storage
        if not isinstance(storage, MemoryStorage):
            return
        life, mirror = self._mirrors.get(host.node, (-1, {}))
        keys: set[Key] = set()
        if isinstance(what, Committed):
            keys = {(op.table, op.key) for tx in what.txs for op in tx.ops}
        elif done is not None and done.outcome is not None:
            touched = done.outcome.touched.tables
            keys = {(table, key) for table, found in touched.items() for key in found}
        if life != host.life or not keys:
            self._mirrors[host.node] = (host.life, storage.rows())
            return
        for origin in {NodeId(str(key[0])) for _, key in keys}:
            rows = storage.rows(origin)
            for each in keys:
                if each[1][0] == origin:
                    mirror.pop(each, None)
                    if each in rows:
                        mirror[each] = rows[each]
        self._steps += 1
        if self._steps % MIRROR_EVERY == 0 and mirror != storage.rows():
            raise InvariantBroken(f"who follows the changes at {host.node} does not see what is there")


def at_rest(hosts: Iterable[CatalogHost]) -> str | None:
    """Why the fleet is not at rest; None when it is."""
    alive = [host for host in hosts if host.up]
    nodes = [host.node for host in hosts]
    for host in alive:
        if not host.engine.settled:
            return f"{host.node} does not know what it has published"
        if host.engine.gaps or host.engine.queued:
            return f"{host.node} has {host.engine.gaps} gaps, {host.engine.queued} changes waiting"
    for scope in Scope:
        for origin in nodes:
            unlike = _unlike(alive, origin, scope)
            if unlike:
                return unlike
    return None


def _unlike(alive: list[CatalogHost], origin: NodeId, scope: Scope) -> str | None:
    by_region: dict[str, list[CatalogHost]] = {}
    for host in alive:
        by_region.setdefault(host.region if scope is Scope.REGION else "", []).append(host)
    for group in by_region.values():
        first = next((host for host in group if host.node == origin), group[0])
        for host in group:
            if 0 < host.engine.position(scope, origin).epoch <= host.engine.position(scope, origin).fence:
                return f"{host.node} has rows of {origin}, which was forgotten"
            here, there = _place(host, origin, scope), _place(first, origin, scope)
            if here != there:
                return f"{host.node} has {origin} at {here} in {scope}, and {first.node} at {there}"
            gap = _differs(host.disk.content(origin, scope), first.disk.content(origin, scope))
            if gap:
                return f"{host.node} has another {gap} of {origin} than {first.node}, both at {here}"
    return None


def _place(host: CatalogHost, origin: NodeId, scope: Scope) -> tuple[int, int, int]:
    position = host.engine.position(scope, origin)
    return position.epoch, position.applied, position.fence


def _differs(one: Mapping[str, frozenset[tuple[Value, ...]]], other: Content) -> str | None:
    """A table that both know and that is not alike."""
    return next((table for table in one if table in other and one[table] != other[table]), None)


REST_S = 60.0
STEP_S = 0.5
RELAPSE_S = 8.0


class CatalogOutcome(ValueObject, frozen=True):
    """`found` is what did not hold, None when all did. `seconds` are virtual."""

    plan: CatalogPlan
    found: str | None
    seconds: float
    checked: int
    """How often a replica was compared with its owner."""


def play_all(
    seeds: Iterable[int], *, kit: CatalogKit = SOUND_CATALOG, files: Path | None = None
) -> Iterator[CatalogOutcome]:
    """One after the other; `files` is a folder for real databases, in which nothing stays."""
    return (play(seed, kit=kit, files=files) for seed in seeds)


def play(seed: int, *, kit: CatalogKit = SOUND_CATALOG, files: Path | None = None) -> CatalogOutcome:
    """Plays one seed; every process gives the outcome that this one gives."""
    source = ManualClock(seed=seed)
    plan = draw(seed, Chance(source))
    world = CatalogNetwork(plan, source)
    oracle = Oracle(strict=plan.strict)
    hosts = _fleet(world, oracle, kit, files)
    found: str | None = None
    try:
        for host in hosts.values():
            host.start()
        faults = CatalogFaults(world, hosts, FAULTS_S)
        faults.begin()
        world.run(FAULTS_S)
        found = _rest(world, hosts, faults)
        if found is None and plan.relapse:
            _relapse(world, hosts, faults)
            found = _rest(world, hosts, faults)
    except InvariantBroken as broken:
        found = str(broken)
    finally:
        for host in hosts.values():
            host.disk.close()
    return CatalogOutcome(plan, found, world.now, oracle.checked)


def _fleet(world: CatalogNetwork, oracle: Oracle, kit: CatalogKit, files: Path | None) -> dict[NodeId, CatalogHost]:
    hosts: dict[NodeId, CatalogHost] = {}
    for number in range(world.plan.nodes):
        node = NodeId(f"{number:08x}")
        clock = HostClock(world)
        disk: CatalogDisk = (
            CatalogMemoryDisk(node, clock, log_txs=world.plan.log_txs, keeper=kit.storage)
            if files is None
            else CatalogFileDisk(node, clock, files / f"{world.plan.seed}-{node}")
        )
        region = f"region {number % world.plan.regions}"
        hosts[node] = CatalogHost(world, node, region, disk, clock, kit=kit, on_done=oracle.look)
        hosts[node].new = world.chance.happens(0.5)
        hosts[node].others = hosts
    return hosts


def _rest(world: CatalogNetwork, hosts: dict[NodeId, CatalogHost], faults: CatalogFaults) -> str | None:
    """All links whole, everybody back; then wait until nothing is left to do. Why it never came to that."""
    world.calm = True
    world.run(world.now + 1.0)
    world.cut.clear()
    for host in hosts.values():
        faults.come_back(host)
    until = world.now + REST_S
    why: str | None = "not begun"
    while why is not None and world.now < until:
        world.run(world.now + STEP_S)
        why = at_rest(hosts.values())
    return why


def _relapse(world: CatalogNetwork, hosts: dict[NodeId, CatalogHost], faults: CatalogFaults) -> None:
    """A host that was stopped in good order and put back, with all that could tell: only its peers know more. Or it is
    gone for good, forgotten by one, and what it said must be nowhere."""
    host = world.chance.one_of([each for each in hosts.values() if each.up])
    faults.write_one(host)
    host.end(host.disk.stop)
    host.disk.mark()
    host.start()
    before = host.engine.position(Scope.REGION, host.node)
    until = world.now + RELAPSE_S
    while world.now < until:
        world.run(world.now + 0.2)
        faults.write_one(host)
        if host.engine.position(Scope.REGION, host.node) != before and at_rest(hosts.values()) is None:
            break
    host.end(host.disk.stop)
    host.disk.rewind(whole=True)
    host.start()
    for _ in range(8):
        world.run(world.now + 0.4)
        faults.write_one(host)

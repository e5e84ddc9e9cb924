"""One seed: a fleet, its faults, and whether all that must hold did. The first thing that did not is the finding."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hawker.catalog.change import Scope
from hawker.clock import ManualClock
from hawker.ids import NodeId
from hawker.sim.catalog.disks import CatalogDisk, CatalogFileDisk, CatalogMemoryDisk
from hawker.sim.catalog.faults import CatalogFaults
from hawker.sim.catalog.host import CatalogHost
from hawker.sim.catalog.kit import SOUND_CATALOG, CatalogKit
from hawker.sim.catalog.network import FAULTS_S, CatalogNetwork, CatalogPlan, HostClock, draw
from hawker.sim.catalog.oracle import InvariantBroken, Oracle, at_rest
from hawker.sim.harness.chance import Chance

REST_S = 60.0
STEP_S = 0.5
RELAPSE_S = 8.0


@dataclass(frozen=True, slots=True)
class CatalogOutcome:
    """`found` is what did not hold, None when all did. `seconds` are virtual."""

    plan: CatalogPlan
    found: str | None
    seconds: float
    checked: int


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

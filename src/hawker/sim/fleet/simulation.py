"""One run of a fleet: a plan played to its end in virtual time, what was found in it, the shortest run that shows the
same (among fewer nodes if that will do, then without the operations that it does not need), and what is said of it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import anyio
from anyio.abc import TaskGroup

from hawker.gossip.memory_network import MemoryNetwork
from hawker.ids import MachineId, NodeId
from hawker.proof.violation import Violation
from hawker.record.machine import MACHINES
from hawker.record.node import TAKEOVERS
from hawker.sim.fleet.checks import bought, judged, not_alike, not_told
from hawker.sim.fleet.client import Buyer, FleetClient, FleetLedger
from hawker.sim.fleet.cluster import SOUND_FLEET, FleetKit, SimCluster, address_of
from hawker.sim.fleet.faults import FleetFaults, Operator
from hawker.sim.fleet.host import FleetHost, LightHost
from hawker.sim.fleet.network import CallNetwork
from hawker.sim.fleet.plan import BROKERS, BUYER, DOUBTER, MINUTES, OPERATOR, FleetPlan
from hawker.sim.fleet.shared_catalog import SharedCatalog
from hawker.sim.harness.loop import LoopClock, eventually
from hawker.sim.harness.plan import NATURE, RunOutcome, Shrinker, only_option
from hawker.sim.harness.seeded_run import SeededGame, SeededRun
from hawker.sim.harness.trace import Trace
from hawker.value_object import ValueObject

_SEEDS = 3
_REGIONS = ("mad", "fra")
_REST_S = 120.0
_STILL_S = 3.0
_HOPE_S = 60.0
_NEW_S = 10.0


class FleetOutcome(RunOutcome[FleetPlan], frozen=True, kw_only=True):
    """`filled` counts orders; `calls` are those between nodes too; `blows` are faults, `kills` of daemons."""

    filled: int
    calls: int
    blows: int
    kills: int
    takeovers: int


class FleetSimulation(SeededRun[FleetPlan, FleetOutcome]):
    who = "a node"

    def __init__(self, plan: FleetPlan, kit: FleetKit) -> None:
        clock = LoopClock(plan.seed)
        self._ledger = FleetLedger(clock, Trace())
        super().__init__(plan, clock, self._ledger)
        shared_catalog = SharedCatalog(self._clock) if plan.light else None
        self._names = [NodeId(f"{number:08x}") for number in range(1, plan.nodes + 1)]
        self._cluster = SimCluster(
            network=MemoryNetwork(self._clock),
            call_network=CallNetwork(self._clock),
            kit=kit,
            seeds=[address_of(name) for name in self._names[:_SEEDS]],
            shared_catalog=shared_catalog,
        )
        self._hosts: Sequence[FleetHost] = ()
        self._takeovers = 0

    def _made(self) -> Sequence[FleetHost]:
        plan, folder = self._plan, self._folder()
        made = LightHost if plan.light else FleetHost
        return [
            made(self._cluster, name, _REGIONS[at % plan.regions], folder, seed=plan.seed * 1000 + at, room=plan.room)
            for at, name in enumerate(self._names)
        ]

    async def _run(self, tasks: TaskGroup) -> None:
        self._hosts = self._made()
        await tasks.start(self._cluster.network.serve)
        if self._cluster.shared_catalog is not None:
            await tasks.start(self._cluster.shared_catalog.serve)
        await tasks.start(self._cluster.call_network.serve)
        self._nature = FleetFaults(self._cluster, self._hosts, self._ledger, tasks)
        for host in self._hosts:
            await host.begin(tasks)
        nodes, names = [host.id for host in self._hosts], (*self._plan.clients, DOUBTER)
        shared = (self._cluster.call_network, nodes, self._ledger, self._clock, self._is_new)
        clients = [*(FleetClient(name, *shared) for name in names), Buyer(BUYER, *shared)]
        operator = Operator(self._cluster.call_network, self._hosts, self._ledger, self._clock)
        for at, client in enumerate(clients):
            await client.begin(at % min(len(self._hosts), BROKERS))
        await eventually(self._clock, self._are_alike, _REST_S, 0.5)
        began = self._clock.monotonic()
        async with anyio.create_task_group() as actors:
            for client in clients:
                actors.start_soon(client.work, self._plan.of(client.name), began)
            actors.start_soon(operator.work, self._plan.of(OPERATOR), began)
            actors.start_soon(self._nature.rage, self._plan.of(NATURE), began)
        await self._nature.rest()
        await self._look()
        for host in self._hosts:
            await host.kill()

    def _are_alike(self) -> bool:
        return not (
            not_alike(self._hosts)
            if self._cluster.shared_catalog is None
            else not_told(self._hosts, self._cluster.shared_catalog)
        )

    def _is_new(self, machine_id: MachineId) -> bool:
        """Whether it is at a node that is down, or came up a moment ago."""
        there = (host for host in self._hosts if host.place.store.get(MACHINES, machine_id) is not None)
        return any(host.node is None or self._clock.monotonic() < host.since + _NEW_S for host in there)

    async def _look(self) -> None:
        found = await self._still()
        self._takeovers = sum(1 for host in self._hosts for _ in host.place.store.scan(TAKEOVERS))
        self._ledger.find(found)

    async def _still(self) -> list[Violation]:
        """What is broken when all is healed: nothing, or what does not mend, for as long as there is hope."""
        found = self._judged()
        until = self._clock.monotonic() + _REST_S
        hopeless = self._clock.monotonic() + (_STILL_S if self._ledger.found else _HOPE_S)
        while found and self._clock.monotonic() < min(until, hopeless):
            await self._clock.sleep(_STILL_S)
            before, found = found, self._judged()
            if found != before:
                hopeless = self._clock.monotonic() + _HOPE_S
        return found

    def _judged(self) -> list[Violation]:
        return [
            *judged(self._hosts, self._ledger.promised, self._cluster.shared_catalog),
            *bought(self._hosts, self._ledger.counted.values(), self._ledger.volumes.values()),
        ]

    def _outcome(self, told: dict[str, Any]) -> FleetOutcome:
        return FleetOutcome(
            **told,
            operations=self._ledger.operations,
            filled=self._ledger.filled,
            calls=self._cluster.call_network.calls,
            blows=self._nature.blows,
            kills=sum(host.kills for host in self._hosts),
            takeovers=self._takeovers,
        )


GAME: SeededGame[FleetKit, FleetPlan, FleetOutcome] = SeededGame(sound=SOUND_FLEET, run=FleetSimulation)
play = GAME.play

TRIES = 120
_SIZES = (3, 4, 5, 7, 10, 20, 50, 100)


def shrink(found: FleetOutcome, kit: FleetKit, tries: int = TRIES) -> FleetOutcome:
    return shortest(found, lambda plan: play(plan, kit), tries)


def shortest(found: FleetOutcome, again: Callable[[FleetPlan], FleetOutcome], tries: int = TRIES) -> FleetOutcome:
    """The shortest run with this finding. The search is bounded by the runs, and not by time, so it always ends
    alike."""
    kind = found.found[0].invariant
    for size in _SIZES:
        if size >= found.plan.nodes or not tries:
            break
        tries -= 1
        narrow = again(found.plan.within(size))
        if narrow.found and narrow.found[0].invariant is kind:
            found = narrow
            break
    plan = found.plan
    return Shrinker(found, lambda numbers: again(plan.only(numbers)), tries).shrink()


# What is said of a run of a fleet: one line, one object, and the command that plays it once more.


class FleetRequest(ValueObject, frozen=True, kw_only=True):
    """How the plans of a run were drawn."""

    minutes: float = MINUTES
    """How long clients ask, in virtual time."""
    nodes: int | None = None
    """How many there are; None: as the seed says."""
    plant: str | None = None
    """The name of the bug that is planted; None for none."""
    light: bool = False
    """Nodes share one catalog, and their workers are fakes: more of them fit."""


def summary(outcome: FleetOutcome) -> str:
    return (
        f"seed {outcome.plan.seed}: {outcome.plan.nodes} nodes, {outcome.operations} operations,"
        f" {outcome.filled} orders filled, {outcome.calls} calls, {outcome.blows} faults,"
        f" {outcome.kills} daemons killed, {outcome.takeovers} takeovers,"
        f" {outcome.ended_at:.0f} s, digest {outcome.digest}"
        f"{', FOUND' if outcome.found else ''}"
    )


def report_of(outcome: FleetOutcome) -> dict[str, object]:
    return {
        "seed": outcome.plan.seed,
        "nodes": outcome.plan.nodes,
        "operations": outcome.operations,
        "filled": outcome.filled,
        "calls": outcome.calls,
        "faults": outcome.blows,
        "kills": outcome.kills,
        "takeovers": outcome.takeovers,
        "seconds": outcome.ended_at,
        "digest": outcome.digest,
        "found": [str(found) for found in outcome.found],
    }


def repeat(shortest: FleetOutcome, of: int, asked: FleetRequest) -> str:
    """`of`: among so many nodes the seed plays."""
    seed, nodes = shortest.plan.seed, shortest.plan.nodes
    words = ["hawker sim fleet", f"--seeds {seed}-{seed}"]
    words += [f"--nodes {asked.nodes}"] if asked.nodes is not None else []
    words += ["--light"] if asked.light else []
    words += [f"--minutes {asked.minutes:g}"] if asked.minutes != MINUTES else []
    words += [f"--plant {asked.plant}"] if asked.plant else []
    words += [f"--narrow {nodes}"] if nodes != of else []
    words += [only_option(shortest)]
    return " ".join(words)

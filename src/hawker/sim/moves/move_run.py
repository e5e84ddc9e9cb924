"""One run of moves: a plan, see `move_plan`, played to its end in virtual time, and what was found in it."""

from collections.abc import Iterator
from typing import Any

from anyio.abc import TaskGroup
from msgspec.structs import replace

from hawker.api.contract.move import (
    CANCEL_MOVE,
    MOVE_FREE_VOLUME,
    MOVE_MACHINE,
    RECLAIM_MOVE,
    MoveParams,
    MoveRequest,
    TakeBackRequest,
)
from hawker.api.contract.volume import UPDATE_VOLUME, UpdateVolumeRequest, VolumeParams
from hawker.errors import Fault, HawkerError
from hawker.ids import AppName, MachineId, NodeId, SnapshotId, VolumeId
from hawker.machine import SETTLED, State
from hawker.proof.host_state import HostState
from hawker.proof.invariants import at_rest
from hawker.proof.move_checks import (
    Generations,
    NodeSight,
    forgotten_orders,
    forgotten_writes,
    lost_snapshots,
    lost_writes,
    moves_at_rest,
    not_the_same,
    of_moves,
    owned_at,
    snapshots_at_rest,
    stays_down,
    stopped_again,
    went_back_again,
)
from hawker.proof.violation import Invariant, Violation
from hawker.record.machine import MACHINES, MachineRecord
from hawker.record.move import AWAITED, INCOMING, MOVES, OPEN_MOVES, TRIALS, MoveState
from hawker.record.volume import VOLUMES
from hawker.sim.fleet.network import CallNetwork, NetworkCut, PassingCall
from hawker.sim.harness.loop import eventually
from hawker.sim.harness.plan import RunOutcome
from hawker.sim.harness.seeded_run import SeededGame, SeededRun
from hawker.sim.moves.move_host import MoveFleet, MoveHost, MoveMoment, memory_key
from hawker.sim.moves.move_plan import DARK_FROM, DROPS, HOSTS, MoveOperation, MovePlan, MoveVerb
from hawker.sim.node.kit import SOUND, WorkerKit
from hawker.sim.node.sim_worker import APP, SimWorker, params
from hawker.store.memory_store import MemoryStore
from hawker.worker.moves.unit import unit_files

_LOOK_S = 0.05
_REST_S = 3000.0
_ASKED_S = 5.0  # what was asked last has begun
_ROT = frozenset({3, 4, 11})
_SWEPT_S = 60.0  # what is looked at now and then was looked at


class MoveOutcome(RunOutcome[MovePlan], frozen=True, kw_only=True):
    """`moves` that ended well, `aborted` ones, `kills` of daemons."""

    moves: int
    aborted: int
    kills: int


class MoveSimulation(SeededRun[MovePlan, MoveOutcome]):
    def __init__(self, plan: MovePlan, kit: WorkerKit) -> None:
        super().__init__(plan)
        self._fleet = MoveFleet(CallNetwork(self._clock), kit)
        for number in range(1, HOSTS + 1):
            host = MoveHost(self._fleet, number, plan.seed * 100 + number, guests=plan.sleeps)
            self._fleet.hosts[host.id] = host
        self._acknowledged: dict[str, int] = {}
        self._forgiven: set[str] = set()
        self._read: dict[NodeId, tuple[MemoryStore, int]] = {}  # by host: its moves were read after so many commits
        self._generations = Generations()
        self._ambushes: list[tuple[NodeId, str, bool]] = []
        self._fleet.call_network.hears = self._hear
        self._calls = 0
        self._snapshots: dict[SnapshotId, int] = {}  # and what their volumes had been written

    async def _run(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        await tasks.start(self._fleet.call_network.serve)
        for host in self._fleet.hosts.values():
            await host.begin(tasks)
        await self._stock()
        tasks.start_soon(self._watch)
        await self._do_all(self._do)
        await self._rest()
        self._judge()
        for host in self._fleet.hosts.values():
            await host.kill()

    async def _stock(self) -> None:
        """A machine with a volume, and a free volume, at the first host; the app is known everywhere."""
        first = next(iter(self._fleet.hosts.values())).worker
        assert first is not None
        await first.app()
        volume = await first.volume("data", size_gb=1, region="mad", encrypted=True)
        free = await first.volume("free", size_gb=1, region="mad", encrypted=True)
        config = {"mounts": [{"volume": volume.id, "path": "/data"}], "metadata": {"a": "b"}}
        if self._plan.keeps_root:
            config["rootfs"] = {"persist": "always"}
        self._machine = MachineId(await first.started(restart={"policy": "always"}, **config))
        self._volume, self._free = VolumeId(volume.id), VolumeId(free.id)
        self._before = first.record(self._machine)
        self._acknowledged.update(next(iter(self._fleet.hosts.values())).write())
        for each in (self._volume, self._free):
            self._snapshots |= await self._taken(first, each)
        if self._plan.rots:
            rot = next(iter(self._fleet.hosts.values())).world.disks.rot
            rot[self._volume], rot[self._free] = _ROT, frozenset({0})

    async def _taken(self, worker: SimWorker, volume: VolumeId) -> dict[SnapshotId, int]:
        """A snapshot of it, and what it is of."""
        made = await worker.parts.snapshots.take(AppName(APP), volume)
        files = next(each.world.copies for each in self._fleet.hosts.values() if each.worker is worker).snapshots
        await eventually(
            self._clock, lambda: made.id in files and worker.parts.runner.list(active=True) == [], 60, 0.05
        )
        return {made.id: files[made.id].content}

    async def _watch(self) -> None:
        """Machines write, and everything is looked at that changed since the last look."""
        seen: list[MoveMoment] = []
        while True:
            await self._clock.sleep(_LOOK_S)
            self._forgive()
            for host in self._fleet.hosts.values():
                written = host.write()
                self._note(forgotten_writes(written, self._acknowledged))
                self._acknowledged.update(written)
            moment = [host.moment() for host in self._fleet.hosts.values()]
            if moment != seen:
                seen, sights = moment, self._fleet.sights()
                self._note([*of_moves(sights), *went_back_again(sights), *self._generations.broken(sights)])
                self._note(lost_snapshots(sights, self._snapshots))

    async def _do(self, operation: MoveOperation) -> None:
        self._say(f"{operation.verb} {operation.label} {operation.word}".rstrip())
        host = self._fleet.hosts[NodeId(f"{int(operation.label):08x}")]
        network, word = self._fleet.call_network, operation.word
        match operation.verb:
            case MoveVerb.MOVE | MoveVerb.MOVE_VOLUME | MoveVerb.CANCEL:
                self._tasks.start_soon(self._ask, operation.verb, host, word)
            case MoveVerb.KILL | MoveVerb.POWER:
                await host.kill(kept=float(word), power=operation.verb is MoveVerb.POWER)
            case MoveVerb.BOOT:
                await host.begin(self._tasks)
            case MoveVerb.CUT:
                other = frozenset({NodeId(f"{int(word):08x}")})
                network.cuts.append(NetworkCut(frozenset({host.id}), other, both=operation.amount > 30))
            case MoveVerb.LATE:
                network.late.append(word)
            case MoveVerb.LOSE:
                network.lost = network.mute = 0.2
            case MoveVerb.SPOIL:
                host.world.moved_files.spoils = 1
            case MoveVerb.REFUSE:
                host.refuses = True
            case MoveVerb.AMBUSH:
                self._ambushes.append((host.id, word, operation.amount > DARK_FROM))
            case MoveVerb.DUD:
                host.dud = True
            case MoveVerb.HEAL:
                self._heal(host)
            case MoveVerb.SUSPEND | MoveVerb.START:
                self._tasks.start_soon(self._sleep, operation.verb)
            case MoveVerb.AGE:
                for each in self._fleet.hosts.values():
                    await each.age()
            case MoveVerb.RECLAIM:
                self._tasks.start_soon(self._reclaim, word == "now")

    def _hear(self, passing: PassingCall) -> None:
        """A host that is waylaid falls at the next call of that name that it makes or answers: its daemon is killed, or
        it loses its power, and all that it had not synced."""
        for ambush in list(self._ambushes):
            host_id, route, dark = ambush
            if route == passing.route and host_id in (passing.sender, passing.receiver):
                self._ambushes.remove(ambush)
                self._say(f"ambush of {host_id} {'before' if passing.before else 'after'} {route}")
                self._fleet.hosts[host_id].fall(kept=0.0, power=dark)

    def _heal(self, host: MoveHost | None = None) -> None:
        self._fleet.call_network.cuts.clear()
        self._fleet.call_network.lost = self._fleet.call_network.mute = 0.0
        for each in self._fleet.hosts.values() if host is None else (host,):
            each.refuses = each.dud = False
            each.world.moved_files.spoils = 0

    async def _sleep(self, verb: MoveVerb) -> None:
        """At the owner; a refusal is an answer."""
        for worker in [at.worker for at in self._fleet.hosts.values() if at.worker and _owns(at, self._machine)]:
            try:
                await (worker.suspend if verb is MoveVerb.SUSPEND else worker.start)(self._machine)
            except HawkerError as error:
                self._say(f"{verb}: {error}")

    async def _ask(self, verb: MoveVerb, to: MoveHost, mode: str) -> None:
        """At the owner, as a broker with a settled catalog does; a refusal is an answer."""
        unit = self._free if verb is MoveVerb.MOVE_VOLUME else self._machine
        worker = next((each.worker for each in self._fleet.hosts.values() if each.worker and _owns(each, unit)), None)
        if worker is None or (verb is MoveVerb.MOVE and worker.record(unit).state is State.FAILED):
            return  # one that does not start goes back by itself
        accept_loss = self._plan.rots and self._calls % 3 != 0
        how = MoveRequest(cold_start=True) if mode == DROPS else MoveRequest(mode=mode or None)
        wish = replace(how, to=to.id, accept_loss=accept_loss or None)
        try:
            match verb:
                case MoveVerb.MOVE:
                    made = await worker.api.call(MOVE_MACHINE, params=params(unit), body=wish)
                case MoveVerb.MOVE_VOLUME:
                    at = VolumeParams(app_name=APP, volume_id=unit)
                    free = MoveRequest(to=to.id, accept_loss=accept_loss or None)
                    made = await worker.api.call(MOVE_FREE_VOLUME, params=at, body=free)
                case _:
                    move = next((each for _, each in worker.store.scan(MOVES) if each.state in OPEN_MOVES), None)
                    if move is None:
                        return
                    made = await worker.api.call(CANCEL_MOVE, params=MoveParams(move_id=move.id))
            self._calls += 1
            self._say(f"{verb}: {made.state} from {made.node} to {made.to}")
        except HawkerError as error:
            self._say(f"{verb}: {error}")

    async def _reclaim(self, now: bool) -> None:
        """Whatever moved last from a host that is up, for any loss, and from whomever: a host that lives keeps it."""
        granted = (MoveState.GRANTED, MoveState.DONE)
        for host in self._fleet.hosts.values():
            gone = [each for _, each in host.world.store.scan(MOVES) if each.state in granted]
            newest = max(gone, key=lambda each: each.id, default=None)
            if host.worker is None or newest is None:
                continue
            at, body = MoveParams(move_id=newest.id), TakeBackRequest(accept_loss=True, now=now or None)
            try:
                made = await host.worker.api.call(RECLAIM_MOVE, params=at, body=body)
                self._say(f"reclaim: {made.state} by {made.node} from {made.to}")
            except HawkerError as error:
                self._say(f"reclaim: {error}")

    def _forgive(self) -> None:
        """What was written at a node from which it was taken back is lost, as was said."""
        for host in self._fleet.hosts.values():
            store = host.world.store
            if self._read.get(host.id) == (store, store.commits):
                continue
            self._read[host.id] = store, store.commits
            for _, move in store.scan(MOVES):
                if move.reclaimed and move.id not in self._forgiven:
                    self._forgiven.add(move.id)
                    for file in unit_files(move):
                        kept = host.world.moved_files.kept(file, move.generation)
                        id = memory_key(kept) if file.memory else file.id
                        self._acknowledged[id] = min(self._acknowledged.get(id, 0), kept)

    async def _rest(self) -> None:
        """All is healed and up, and everything has come to its end."""
        self._heal()
        self._ambushes.clear()
        self._fleet.call_network.late.clear()
        await self._clock.sleep(_ASKED_S)
        for host in self._fleet.hosts.values():
            await host.begin(self._tasks)
        for _ in range(2):
            try:
                await eventually(self._clock, lambda: bool(self._found) or not any(self._left()), _REST_S, 1.0)
            except TimeoutError:
                self._note(Violation(Invariant.MOVE_ENDS, about, what) for about, what in self._left())
            await self._clock.sleep(_SWEPT_S)
            await self._accept_losses()

    async def _accept_losses(self) -> None:
        """Whoever has a damaged volume goes on with what is left of it: what was lost does not count as kept."""
        for host in self._fleet.hosts.values():
            for _, volume in list(host.world.store.scan(VOLUMES)):
                if host.worker is None or not volume.damaged or self._found:
                    continue
                self._acknowledged[volume.id] = host.world.disks.files[volume.id].content
                at = VolumeParams(app_name=APP, volume_id=volume.id)
                await host.worker.api.call(UPDATE_VOLUME, params=at, body=UpdateVolumeRequest(accept_damage=True))
                if volume.machine is not None:
                    await host.worker.start(volume.machine)
                    await host.worker.reaches(volume.machine, State.STARTED)

    def _left(self) -> Iterator[tuple[str, str]]:
        for host in self._fleet.hosts.values():
            if host.worker is None:
                yield host.id, "is down"
                continue
            reader = host.world.store
            yield from ((run.run_id, f"{run.flow} at {run.step}") for run in host.worker.parts.runner.list(active=True))
            yield from ((each.id, each.state) for _, each in reader.scan(MOVES) if each.state in OPEN_MOVES)
            yield from ((each.move, each.state) for _, each in reader.scan(INCOMING) if each.state in AWAITED)
            yield from ((each.id, each.state) for _, each in reader.scan(MACHINES) if each.state not in SETTLED)
            tried = [record for key, _ in reader.scan(TRIALS) if (record := reader.get(MACHINES, key)) is not None]
            yield from ((each.id, "is to go back") for each in tried if each.state is State.FAILED)

    def _judge(self) -> None:
        if self._found:
            return
        sights = self._fleet.sights()
        self._note([*of_moves(sights), *moves_at_rest(sights), *lost_writes(sights, self._acknowledged)])
        self._note([*went_back_again(sights), *stays_down(sights)])
        self._note([*lost_snapshots(sights, self._snapshots), *snapshots_at_rest(sights, self._snapshots)])
        self._note(self._machine_at_rest(sights))
        self._note(self._keys_at_rest())
        for host in self._fleet.hosts.values():
            seen: HostState = replace(host.world.seen(), ended=None)
            self._note(at_rest(host.world.store, seen))

    def _machine_at_rest(self, sights: list[NodeSight]) -> Iterator[Violation]:
        records = [record for sight in sights if (record := sight.reader.get(MACHINES, self._machine)) is not None]
        for record in records:
            yield from not_the_same(self._before, record)
            yield from () if self._plan.sleeps else _running(record)
        for sight in sights:
            yield from stopped_again(sight.reader, self._machine)
        yield from forgotten_orders(sights, self._before)
        if not records:
            yield Violation(Invariant.KEPT, self._machine, "is nowhere")

    def _keys_at_rest(self) -> Iterator[Violation]:
        """Who has a volume can open it."""
        for host in self._fleet.hosts.values():
            for _, volume in host.world.store.scan(VOLUMES):
                keys = None if host.worker is None else host.worker.parts.deps.volume_keys
                try:
                    assert keys is not None and volume.key is not None
                    keys.open(volume.key)
                except (AssertionError, Fault):
                    yield Violation(Invariant.KEPT, volume.id, f"node {host.id} cannot open it")

    def _outcome(self, told: dict[str, Any]) -> MoveOutcome:
        states = [each.state for sight in self._fleet.sights() for _, each in sight.reader.scan(MOVES)]
        return MoveOutcome(
            **told,
            operations=self._calls,
            moves=states.count(MoveState.DONE),
            aborted=states.count(MoveState.ABORTED),
            kills=sum(host.kills for host in self._fleet.hosts.values()),
        )


GAME: SeededGame[WorkerKit, MovePlan, MoveOutcome] = SeededGame(sound=SOUND, run=MoveSimulation)
play, shrink = GAME.play, GAME.shrink


def _owns(host: MoveHost, unit: str) -> bool:
    return any(owned == unit for owned, _ in owned_at(host.world.store))


def _running(record: MachineRecord) -> Iterator[Violation]:
    """Nobody stopped it but its moves."""
    if record.state is not State.STARTED:
        yield Violation(Invariant.SAME, record.id, f"ran before its moves, and is {record.state}")

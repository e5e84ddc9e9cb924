"""`hawker chaos move`: a machine with its volume moves to and fro between two real nodes. At every place of every move
a daemon dies, the link between the nodes is cut, and a client goes on writing. What was acknowledged must be there.

Hosts are network namespaces. A third node, which nobody hurts, is the client's broker. For root; all of it is gone at
the end.
"""

import hashlib
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import anyio
import msgspec
from anyio.to_thread import run_sync

from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.cluster import CORDON_NODE, LIST_NODES, NodeParams
from hawker.api.contract.image import PRUNE_IMAGES, PruneRequest
from hawker.api.contract.machine import CREATE_MACHINE, GET_MACHINE, CreateMachineRequest, Machine, MachineParams
from hawker.api.contract.move import (
    CANCEL_MOVE,
    LIST_MOVES,
    MOVE_MACHINE,
    ListMovesQuery,
    Move,
    MoveParams,
    MoveRequest,
)
from hawker.api.contract.run import LIST_RUNS, ListRunsQuery, RunState
from hawker.api.contract.volume import (
    CREATE_SNAPSHOT,
    CREATE_VOLUME,
    LIST_SNAPSHOTS,
    CreateVolumeRequest,
    VolumeParams,
)
from hawker.chaos.fleet.network_lab import NetworkLab
from hawker.chaos.fleet.real_fleet import LabFleet, LabNode
from hawker.chaos.moves.blow import NEVER_ACCEPTED, Blow, MoveKind, MoveTrialPlan, OrderedMove
from hawker.chaos.moves.move_report import BlowRow, BlowsReport
from hawker.chaos.moves.writers import BlocksWriter, DatabaseWriter, GitWriter, LedgerWriter, RootWriter, Writer, led_to
from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, HawkerError, Unavailable
from hawker.failpoint import LISTING
from hawker.gossip.contract import Fate
from hawker.log import Secret
from hawker.machine import State
from hawker.record.move import MoveState

APP = "moves"
WITHIN_S = 120.0
_LOOK_S = 0.05
_STREET = 12
_FLAGS = ("--cpus", "16", "--memory-mib", "8192")
_OFTEN = ("--reconcile-every-s", "1")  # when moves begin that are due
_FOLLOWS_WITHIN_S = 30.0
_MARKET = "[limits]\nbid_deadline_s = 4.0\n"  # nodes of one busy host need longer than a fleet's
_SLOW_MIB = 16  # of some 40 that there are
_ENDED = frozenset({MoveState.DONE, MoveState.ABORTED})
_AFTER = {state: number for number, state in enumerate(MoveState)}

T = TypeVar("T")


async def run_move_trial(
    plan: MoveTrialPlan, clock: Clock, tell: Callable[[BlowRow], None], say: Callable[[str], None]
) -> BlowsReport:
    """Each row is told as soon as it is known. Raises `HawkerError` when the nodes cannot be had at all."""
    began = clock.monotonic()
    with TemporaryDirectory(prefix="hawker-chaos-", dir=plan.where) as made:
        directory = Path(made)
        writer = _writer(plan, clock, directory)
        await run_sync(write_layout_of, writer, directory)
        with lab_fleet(directory, clock, *(_OFTEN if plan.kinds else ())) as fleet:
            async with brokered(fleet) as broker:
                trial = MoveTrial(plan, clock, tell, say, fleet, broker, writer, f"oci:{directory / 'image'}")
                await trial.run()
    findings = (*trial.findings, *(f"left on the host: {trace}" for trace in fleet.left))
    return BlowsReport(
        workload=plan.workload,
        seconds=clock.monotonic() - began,
        acknowledged=writer.acknowledged,
        rows=tuple(trial.rows),
        findings=findings,
    )


def _writer(plan: MoveTrialPlan, clock: Clock, directory: Path) -> Writer:
    if plan.workload == "database":
        return DatabaseWriter(clock, directory / "pgbench")
    lines = {"ledger": LedgerWriter, "root": RootWriter, "blocks": BlocksWriter, "git": GitWriter}
    return lines[plan.workload](clock)


def write_layout_of(writer: Writer, directory: Path) -> None:
    """The image that its machine runs from, as `image` in that directory."""
    writer.image(directory / "image.tar")
    with tarfile.open(directory / "image.tar") as archive:
        archive.extractall(directory / "image", filter="data")


@contextmanager
def lab_fleet(directory: Path, clock: Clock, *own: str, street: int = _STREET) -> Iterator[LabFleet]:
    """Three nodes in one region, below that directory; no two labs of one `street` at once."""
    (directory / "market.toml").write_text(_MARKET)
    for name in ("street", "nodes"):
        (directory / name).mkdir()
    flags = (*_FLAGS, *own, "--market", str(directory / "market.toml"))
    with NetworkLab(directory / "street", street, 3) as lab:
        fleet = LabFleet(lab, directory / "nodes", clock, *flags, driver="container")
        with fleet:
            yield fleet


@asynccontextmanager
async def brokered(fleet: LabFleet) -> AsyncIterator[Client]:
    """A client of the third node."""
    third = fleet.stalls[2]
    async with Client(third.url, Secret(fleet.stalls[0].daemon.token)) as client:
        yield client


class MoveTrial:
    def __init__(
        self,
        plan: MoveTrialPlan,
        clock: Clock,
        tell: Callable[[BlowRow], None],
        say: Callable[[str], None],
        fleet: LabFleet,
        broker: Client,
        writer: Writer,
        reference: str,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._tell = tell
        self._say = say
        self._fleet = fleet
        self._broker = broker
        self._writer = writer
        self._reference = reference
        self._volume = self._snapshot = ""
        self._params = MachineParams(app_name=APP, machine_id="")
        self._port = 0
        self._content = b""
        self.rows: list[BlowRow] = []
        self.findings: list[str] = []

    async def run(self) -> None:
        """Every blow, with a client that writes all the time."""
        machine = await self._set_up()
        token = self._fleet.stalls[0].daemon.token
        with led_to(self._fleet.stalls[2].url, token, APP, machine.id, self._writer.remote) as port:
            self._port = port
            await self._writer.load(port)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._writer.write, port)
                try:
                    await self._blows(machine)
                except HawkerError as error:
                    self.findings.append(f"the trial could not go on: {type(error).__name__}: {error}")
                tasks.cancel_scope.cancel()

    async def _blows(self, machine: Machine) -> None:
        for move in self._plan.moves():
            places = await self._rehearse(move, machine)
            for place in places:
                await self._deal(Blow(move, place), machine)
        for blow in self._plan.cuts:
            if blow.move.mode in self._plan.modes:
                await self._deal(blow, machine)

    # Before.

    async def _set_up(self) -> Machine:
        await self._patiently(self._everybody_is_here)
        third = self._fleet.stalls[2].id
        await self._patiently(lambda: self._broker.call(CORDON_NODE, params=NodeParams(node_id=third)))
        await self._broker.call(CREATE_APP, body=CreateAppRequest(name=APP))
        app = AppParams(app_name=APP)
        order = CreateVolumeRequest(name="data", size_gb=1, region="mad", encrypted=False, auto_backup_enabled=False)
        volume = await self._patiently(lambda: self._quietly(self._broker.call(CREATE_VOLUME, params=app, body=order)))
        self._volume = volume.id
        body = CreateMachineRequest(name="writes", config=self._writer.config(self._reference, volume.id))

        async def made() -> Machine | None:
            return await self._quietly(
                self._broker.call(CREATE_MACHINE, params=app, body=body, idempotency_key="writes", timeout_s=60.0)
            )

        machine = await self._patiently(made)
        self._params = MachineParams(app_name=APP, machine_id=machine.id)
        await self._patiently(self._runs)
        return await self._broker.call(GET_MACHINE, params=self._params)

    async def _rehearse(self, move: OrderedMove, machine: Machine) -> list[str]:
        """The move without a blow: the places that both nodes come by, in their order."""
        if move.kind is MoveKind.FOLLOWED and not self._snapshot:
            await self._take_snapshot()
        for stall in self._fleet.stalls[:2]:
            await self._again(stall, LISTING)
        await self._deal(Blow(move), machine)
        met = [place for stall in self._fleet.stalls[:2] for place in stall.daemon.reached()]
        for stall in self._fleet.stalls[:2]:
            await self._again(stall)
        return move.about(met, self._plan.places)

    # A blow.

    async def _deal(self, blow: Blow, machine: Machine) -> None:
        row = BlowRow(move=blow.move.name, blow=str(blow), end="-", recovered_s=None, away_s=0.0, findings=())
        try:
            row = await self._dealt(blow, row, machine)
        except HawkerError as error:
            row = msgspec.structs.replace(row, findings=(f"{type(error).__name__}: {error}",))
            await run_sync(self._fleet.lab.heal)
            for stall in self._fleet.stalls[:2]:
                if not stall.daemon.alive:
                    await self._again(stall)
        self.rows.append(row)
        self._tell(row)

    async def _dealt(self, blow: Blow, row: BlowRow, machine: Machine) -> BlowRow:
        """Raises `HawkerError` when the nodes do not come to rest."""
        source, destination = self._ends()
        dies = destination if blow.at_destination else source
        if blow.place:
            await self._again(dies, blow.place)
        if blow.place.startswith("receive.image."):
            await self._forget_image(destination)
        known = {each.id for each in await self._patiently(self._all_moves)}
        self._writer.forget()
        slow = blow.cut_at is not None or blow.move.cancel_at is not None
        at = datetime.fromtimestamp(self._clock.now(), UTC) if blow.move.kind is MoveKind.SCHEDULED else None
        limit = _SLOW_MIB if slow else None
        wish = MoveRequest(to=destination.id, mode=blow.move.mode, limit_mib_per_s=limit, at=at)
        findings = list[str]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._order, wish, known, bool(blow.place))
            if blow.move.cancel_at is not None:
                tasks.start_soon(self._cancel, known, blow.move.cancel_at)
            if blow.cut_at is not None:
                await self._cut(blow, known)
            if not blow.place:
                await self._patiently(partial(self._is_over, known))
            elif not await self._dies(dies, known):
                findings.append("it did not die there")
            tasks.cancel_scope.cancel()
        if blow.place and blow.cut_s:
            await run_sync(self._fleet.lab.part, *([stall.host] for stall in self._fleet.stalls[:2]))
        if not dies.daemon.alive:
            await run_sync(dies.restart)
        if blow.place and blow.cut_s:
            await self._clock.sleep(blow.cut_s)
            await run_sync(self._fleet.lab.heal)
        began = self._clock.monotonic()
        moves = await self._at_rest(known, begun=blow.place not in NEVER_ACCEPTED)
        recovered_s = self._clock.monotonic() - began
        await self._patiently(partial(self._has_written, self._writer.acknowledged))
        away_s = self._writer.longest_s
        ended = moves[0] if moves else None
        if len(moves) > 1:
            findings.append(f"{len(moves)} moves came of one order")
        findings += await self._judged(ended, source, destination, machine)
        end = ended.state if ended is not None else "none"
        return msgspec.structs.replace(row, end=end, recovered_s=recovered_s, away_s=away_s, findings=tuple(findings))

    async def _forget_image(self, stall: LabNode) -> None:
        """So that it has to fetch it once more."""
        async with Client(stall.url, Secret(self._fleet.stalls[0].daemon.token)) as client:
            await client.call(PRUNE_IMAGES, body=PruneRequest())

    async def _order(self, wish: MoveRequest, known: set[str], once: bool) -> None:
        """Until it is accepted, or the node that accepts it has died."""
        while not [each for each in await self._patiently(self._all_moves) if each.id not in known]:
            try:
                await self._broker.call(MOVE_MACHINE, params=self._params, body=wish)
            except Unavailable:
                if once and not all(stall.daemon.alive for stall in self._fleet.stalls[:2]):
                    return
            except HawkerError as error:
                if not error.retry:
                    self._say(f"the move is refused: {error}")
            await self._clock.sleep(_LOOK_S)

    async def _cancel(self, known: set[str], at: MoveState) -> None:
        while True:
            with suppress(HawkerError):
                for move in await self._all_moves():
                    if move.id not in known and _AFTER[MoveState(move.state)] >= _AFTER[at]:
                        await self._broker.call(CANCEL_MOVE, params=MoveParams(move_id=move.id))
            await self._clock.sleep(_LOOK_S)

    async def _cut(self, blow: Blow, known: set[str]) -> None:
        """The link between the two, once the move is there; the broker reaches both."""
        at = blow.cut_at
        assert at is not None, "it is asked for a cut"

        async def is_there() -> bool:
            moves = [each for each in await self._all_moves() if each.id not in known]
            return any(_AFTER[MoveState(each.state)] >= _AFTER[at] for each in moves)

        await self._patiently(is_there)
        await run_sync(self._fleet.lab.part, *([stall.host] for stall in self._fleet.stalls[:2]))
        await self._clock.sleep(blow.cut_s)
        await run_sync(self._fleet.lab.heal)

    async def _is_over(self, known: set[str]) -> bool:
        return any(each.id not in known and each.state in _ENDED for each in await self._all_moves())

    async def _dies(self, stall: LabNode, known: set[str]) -> bool:
        """Whether it has, or the move came to its end without that."""
        until = self._clock.monotonic() + WITHIN_S
        while stall.daemon.alive and self._clock.monotonic() < until:
            with suppress(HawkerError):
                if await self._is_over(known) and not await self._dead_soon(stall):
                    return False
            await self._clock.sleep(_LOOK_S)
        return not stall.daemon.alive

    async def _dead_soon(self, stall: LabNode) -> bool:
        """What follows the end of a move, its destination does a little later; a snapshot comes behind all moves."""
        until = self._clock.monotonic() + _FOLLOWS_WITHIN_S
        while stall.daemon.alive and self._clock.monotonic() < until:
            await self._clock.sleep(_LOOK_S)
        return not stall.daemon.alive

    # After it.

    async def _at_rest(self, known: set[str], *, begun: bool = True) -> list[Move]:
        """The move, once it has ended and its machine runs; none when there never was one. A node that is back is asked
        by the broker a little after it is known to live."""

        async def ended() -> bool:
            here, moves = await self._everybody_is_here(), await self._all_moves()
            told = not begun or any(each.id not in known for each in moves)
            over = all(each.state in _ENDED for each in moves)
            return here and told and over and await self._runs() and await self._has_followed()

        await self._patiently(ended)
        return [each for each in await self._patiently(self._all_moves) if each.id not in known]

    async def _judged(self, move: Move | None, source: LabNode, destination: LabNode, machine: Machine) -> list[str]:
        (found,) = await self._patiently(lambda: self._quietly(self._sound()))
        owners = [stall for stall in (source, destination) if self._has_file(stall)]
        wanted = destination if move is not None and move.state == MoveState.DONE else source
        if owners != [wanted]:
            found.append(f"the volume's file is at {[each.host.number for each in owners]}, not {wanted.host.number}")
        after = await self._patiently(lambda: self._quietly(self._broker.call(GET_MACHINE, params=self._params)))
        kept = [(each.id, each.name, each.private_ip, each.config) for each in (machine, after)]
        if self._snapshot and await run_sync(self._content_at, wanted) != self._content:
            found.append("the snapshot has other content than when it was taken")
        if kept[0] != kept[1]:
            found.append("the machine has another name, address or config")
        return found

    async def _sound(self) -> tuple[list[str]]:
        return (await self._writer.broken(self._port),)

    # What is seen.

    def _ends(self) -> tuple[LabNode, LabNode]:
        """Source and destination of the next move."""
        first, second = self._fleet.stalls[:2]
        return (first, second) if self._has_file(first) else (second, first)

    def _has_file(self, stall: LabNode) -> bool:
        return (stall.daemon.place.volumes / self._volume / "disk").exists()

    async def _take_snapshot(self) -> None:
        """From here on it follows the volume in each move."""
        params = VolumeParams(app_name=APP, volume_id=self._volume)
        taken = await self._patiently(lambda: self._quietly(self._broker.call(CREATE_SNAPSHOT, params=params)))
        self._snapshot = taken.Msg.backup.id
        await self._patiently(self._has_followed)
        here, _ = self._ends()
        self._content = await run_sync(self._content_at, here)

    async def _has_followed(self) -> bool:
        """Whether the snapshot, if there is one, is where its volume is, and nowhere else."""
        if not self._snapshot:
            return True
        params = VolumeParams(app_name=APP, volume_id=self._volume)
        listed = await self._broker.call(LIST_SNAPSHOTS, params=params)
        there = [stall for stall in self._fleet.stalls[:2] if self._snapshot_at(stall).exists()]
        whole = [(each.id, each.status, each.node) for each in listed] == [(self._snapshot, "created", None)]
        return whole and there == [self._ends()[0]]

    def _snapshot_at(self, stall: LabNode) -> Path:
        return stall.daemon.place.snapshots / self._snapshot

    def _content_at(self, stall: LabNode) -> bytes:
        with self._snapshot_at(stall).open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    async def _again(self, stall: LabNode, failpoint: str | None = None) -> None:
        """Another life of its daemon, once what the last one began is done and all know each other: a move that is over
        at its source may have a run left at its destination, which would die of this failpoint while it boots."""
        if stall.daemon.alive:
            await self._patiently(partial(self._is_idle, stall))

        def begin() -> None:
            if stall.daemon.alive:
                stall.daemon.kill()
            stall.daemon.launch(failpoint=failpoint).wait_ready()

        await run_sync(begin)
        await self._patiently(self._everybody_is_here)
        await self._patiently(self._runs)

    async def _is_idle(self, stall: LabNode) -> bool:
        async with Client(stall.url, Secret(self._fleet.stalls[0].daemon.token)) as client:
            under_way = ListRunsQuery(state=(RunState.QUEUED, RunState.ACTIVE))
            return not (await client.call(LIST_RUNS, query=under_way)).runs

    async def _everybody_is_here(self) -> bool:
        nodes = (await self._broker.call(LIST_NODES)).nodes
        return len(nodes) == 3 and all(node.state == Fate.ALIVE and node.capacity is not None for node in nodes)

    async def _runs(self) -> bool:
        return (await self._broker.call(GET_MACHINE, params=self._params)).state is State.STARTED

    async def _has_written(self, before: int) -> bool:
        return self._writer.acknowledged > before

    async def _all_moves(self) -> Sequence[Move]:
        """Of the app, as the nodes that answer tell them."""
        found = await self._broker.call(LIST_MOVES, query=ListMovesQuery(app=APP))
        return found.moves

    async def _quietly(self, asked: Awaitable[T]) -> T | None:
        try:
            return await asked
        except HawkerError:
            return None

    async def _patiently(self, ask: Callable[[], Awaitable[T | None]]) -> T:
        """Its first answer that is none of None, False; a node that is away is asked again. Raises
        `DeadlineExceeded`."""
        until, why = self._clock.monotonic() + WITHIN_S, ""
        while self._clock.monotonic() < until:
            try:
                if (found := await ask()) is not None and found is not False:
                    return found
            except HawkerError as error:
                why = str(error)
            await self._clock.sleep(_LOOK_S)
        raise DeadlineExceeded(f"what the trial waits for was not seen within {WITHIN_S:g} s: {why}")

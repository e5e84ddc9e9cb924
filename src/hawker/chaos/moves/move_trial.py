"""`hawker chaos move`: a machine with its volume moves to and fro between two real nodes. At every place of every move
a daemon dies, the link between the nodes is cut, and a client goes on writing. What was acknowledged must be there.

Hosts are network namespaces. A third node, which nobody hurts, is the client's broker. For root; all of it is gone at
the end.
"""

import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec
from anyio.to_thread import run_sync

from hawker.api.contract.cluster import LIST_NODES
from hawker.api.contract.image import PRUNE_IMAGES, PruneRequest
from hawker.api.contract.machine import Machine
from hawker.api.contract.move import (
    CANCEL_MOVE,
    MOVE_MACHINE,
    RECLAIM_MOVE,
    Move,
    MoveParams,
    MoveRequest,
    TakeBackRequest,
)
from hawker.chaos.fleet.real_fleet import LabNode
from hawker.chaos.moves.blow import NEVER_ACCEPTED, Blow, MoveKind, MoveTrialPlan, OrderedMove
from hawker.chaos.moves.move_report import BlowRow, BlowsReport
from hawker.chaos.moves.moving_machine import APP, LOOK_S, WITHIN_S, MovingMachine, brokered, lab_fleet
from hawker.chaos.moves.refusal import BY_CRUN, refusing
from hawker.chaos.moves.writers import BlocksWriter, DatabaseWriter, GitWriter, LedgerWriter, RootWriter, Writer, led_to
from hawker.clock import Clock
from hawker.errors import HawkerError, Unavailable
from hawker.failpoint import LISTING
from hawker.gossip.contract import Fate
from hawker.record.move import MoveState

_OFTEN = ("--reconcile-every-s", "1")  # when moves begin that are due
_FOLLOWS_WITHIN_S = 30.0
_SLOW_MIB = 16  # of some 40 that there are
_ENDED = frozenset({MoveState.DONE, MoveState.ABORTED})
_AFTER = {state: number for number, state in enumerate(MoveState)}

_AT_SOURCE, _AT_RETURN = "reclaim.", "surrender."


async def run_move_trial(
    plan: MoveTrialPlan, clock: Clock, tell: Callable[[BlowRow], None], say: Callable[[str], None]
) -> BlowsReport:
    """Each row is told as soon as it is known. Raises `HawkerError` when the nodes cannot be had at all."""
    began = clock.monotonic()
    with TemporaryDirectory(prefix="hawker-chaos-", dir=plan.where) as made:
        directory = Path(made)
        writer = _writer(plan, clock, directory)
        await run_sync(write_layout_of, writer, directory)
        own = (*(_OFTEN if plan.kinds else ()), *(BY_CRUN if MoveKind.BACK in plan.kinds else ()))
        with lab_fleet(directory, clock, *own) as fleet:
            async with brokered(fleet) as broker:
                moving = MovingMachine(clock, fleet, broker)
                trial = MoveTrial(plan, clock, tell, say, moving, writer, f"oci:{directory / 'image'}")
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


class MoveTrial:
    def __init__(
        self,
        plan: MoveTrialPlan,
        clock: Clock,
        tell: Callable[[BlowRow], None],
        say: Callable[[str], None],
        moving: MovingMachine,
        writer: Writer,
        reference: str,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._tell = tell
        self._say = say
        self._moving = moving
        self._writer = writer
        self._reference = reference
        self._port = 0
        self._writing = anyio.CancelScope()
        self._may_write = anyio.Event()
        self._may_write.set()
        self._known = set[str]()
        self.rows: list[BlowRow] = []
        self.findings: list[str] = []

    async def run(self) -> None:
        """Every blow, with a client that writes all the time."""
        machine = await self._moving.set_up(self._writer, self._reference)
        token = self._moving.fleet.stalls[0].daemon.token
        with led_to(self._moving.fleet.stalls[2].url, token, APP, machine.id, self._writer.remote) as port:
            self._port = port
            await self._writer.load(port)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                try:
                    await self._blows(machine)
                except HawkerError as error:
                    self.findings.append(f"the trial could not go on: {type(error).__name__}: {error}")
                tasks.cancel_scope.cancel()

    async def _write(self) -> None:
        """All the time, but while it is to be silent."""
        while True:
            await self._may_write.wait()
            with anyio.CancelScope() as self._writing:
                await self._writer.write(self._port)

    @contextmanager
    def _silence(self) -> Iterator[None]:
        self._may_write = anyio.Event()
        self._writing.cancel()
        try:
            yield
        finally:
            self._may_write.set()

    async def _blows(self, machine: Machine) -> None:
        for move in self._plan.moves():
            places = await self._rehearse(move, machine)
            for place in places:
                both = self._plan.both and not move.is_reclaimed
                await self._deal(Blow(move, place, both=both), machine)
        for blow in self._plan.cuts:
            if blow.move.mode in self._plan.modes:
                await self._deal(blow, machine)

    # Before.

    async def _rehearse(self, move: OrderedMove, machine: Machine) -> list[str]:
        """The move without a blow: the places that the nodes come by which are to die there, in their order."""
        if move.kind is MoveKind.FOLLOWED and not self._moving.snapshot:
            await self._moving.take_snapshot()
        for stall in self._moving.fleet.stalls[:2]:
            await self._moving.again(stall, LISTING)
        source, destination = self._moving.ends()
        await self._deal(Blow(move), machine)
        met = [each for each in source.daemon.reached() if not Blow(move, each).at_destination]
        met += [each for each in destination.daemon.reached() if Blow(move, each).at_destination]
        for stall in self._moving.fleet.stalls[:2]:
            await self._moving.again(stall)
        return move.about(met, self._plan.places)

    async def _known_moves(self) -> set[str]:
        """All that there ever were: a node that came back a moment ago may not be asked yet."""
        self._known |= {each.id for each in await self._moving.patiently(self._moving.all_moves)}
        return set(self._known)

    # A blow.

    async def _deal(self, blow: Blow, machine: Machine) -> None:
        row = BlowRow(move=blow.move.name, blow=str(blow), end="-", recovered_s=None, away_s=0.0, findings=())
        try:
            row = await self._dealt(blow, row, machine)
        except HawkerError as error:
            row = msgspec.structs.replace(row, findings=(f"{type(error).__name__}: {error}",))
            await run_sync(self._moving.fleet.lab.heal)
            for stall in self._moving.fleet.stalls[:2]:
                if not stall.daemon.alive:
                    await self._moving.again(stall)
        self.rows.append(row)
        self._tell(row)

    async def _dealt(self, blow: Blow, row: BlowRow, machine: Machine) -> BlowRow:
        """Raises `HawkerError` when the nodes do not come to rest."""
        source, destination = self._moving.ends()
        dies, other = (destination, source) if blow.at_destination else (source, destination)
        if blow.place:
            await self._moving.again(dies, blow.place)
        if blow.move.is_reclaimed:
            return await self._taken_back(blow, row, machine)
        with refusing(destination.daemon) if blow.move.goes_back else nullcontext():
            return await self._befallen(blow, row, machine, dies, other)

    async def _befallen(self, blow: Blow, row: BlowRow, machine: Machine, dies: LabNode, other: LabNode) -> BlowRow:
        """Raises `HawkerError` as well."""
        source, destination = self._moving.ends()
        if blow.place.startswith("receive.image."):
            await self._forget_image(destination)
        known = await self._known_moves()
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
                await self._moving.patiently(partial(self._is_over, known))
            elif not await self._dies(dies, known, WITHIN_S if blow.move.goes_back else _FOLLOWS_WITHIN_S):
                findings.append("it did not die there")
            tasks.cancel_scope.cancel()
        if blow.place and blow.cut_s:
            await run_sync(self._moving.fleet.lab.part, *([stall.host] for stall in self._moving.fleet.stalls[:2]))
        if blow.both:
            await run_sync(other.crash)
            await run_sync(other.restart)
        if not dies.daemon.alive:
            await run_sync(dies.restart)
        if blow.place and blow.cut_s:
            await self._clock.sleep(blow.cut_s)
            await run_sync(self._moving.fleet.lab.heal)
        return await self._ended(blow, row, machine, (source, destination), known, findings)

    async def _taken_back(self, blow: Blow, row: BlowRow, machine: Machine) -> BlowRow:
        """Raises `HawkerError` as well."""
        source, destination = self._moving.ends()
        known = await self._known_moves()
        with self._silence():
            await self._order(MoveRequest(to=destination.id, mode=blow.move.mode), known, once=False)
            (move,) = await self._moving.at_rest(known)
            reclaimed = ReclaimedMove(self._moving, source, destination, blow.place)
            await reclaimed.lose_and_take_back(move.id)
            self._writer.forget()
        return await self._ended(blow, row, machine, (source, destination), known, [])

    async def _ended(
        self,
        blow: Blow,
        row: BlowRow,
        machine: Machine,
        ends: tuple[LabNode, LabNode],
        known: set[str],
        findings: list[str],
    ) -> BlowRow:
        """What came of it, once all is at rest. Raises `HawkerError` as well."""
        began = self._clock.monotonic()
        moves = await self._moving.at_rest(known, begun=blow.place not in NEVER_ACCEPTED)
        recovered_s = self._clock.monotonic() - began
        await self._moving.patiently(partial(self._has_written, self._writer.acknowledged))
        away_s = self._writer.longest_s
        self._known |= {each.id for each in moves}
        ordered = [each for each in moves if each.back_of is None]
        returned = [each for each in moves if each.back_of is not None and each.state == MoveState.DONE]
        ended = (*returned, *ordered, None)[0]
        if len(ordered) > 1 or len(returned) != blow.move.goes_back:
            findings.append(f"of one order came {len(ordered)} moves, and {len(returned)} back")
        findings += await self._judged(ended, *ends, machine)
        end, reason = ("none", "") if ended is None else (ended.state, ended.reason)
        times = {"recovered_s": recovered_s, "away_s": away_s}
        return msgspec.structs.replace(row, end=end, reason=reason, findings=tuple(findings), **times)

    async def _forget_image(self, stall: LabNode) -> None:
        """So that it has to fetch it once more."""
        async with self._moving.client_of(stall) as client:
            await client.call(PRUNE_IMAGES, body=PruneRequest())

    async def _order(self, wish: MoveRequest, known: set[str], once: bool) -> None:
        """Until it is accepted, or the node that accepts it has died."""
        while not [each for each in await self._moving.patiently(self._moving.all_moves) if each.id not in known]:
            try:
                await self._moving.broker.call(MOVE_MACHINE, params=self._moving.params, body=wish)
            except Unavailable:
                if once and not all(stall.daemon.alive for stall in self._moving.fleet.stalls[:2]):
                    return
            except HawkerError as error:
                if not error.retry:
                    self._say(f"the move is refused: {error}")
            await self._clock.sleep(LOOK_S)

    async def _cancel(self, known: set[str], at: MoveState) -> None:
        while True:
            with suppress(HawkerError):
                for move in await self._moving.all_moves():
                    if move.id not in known and _AFTER[MoveState(move.state)] >= _AFTER[at]:
                        await self._moving.broker.call(CANCEL_MOVE, params=MoveParams(move_id=move.id))
            await self._clock.sleep(LOOK_S)

    async def _cut(self, blow: Blow, known: set[str]) -> None:
        """The link between the two, once the move is there; the broker reaches both."""
        at = blow.cut_at
        assert at is not None, "it is asked for a cut"

        async def is_there() -> bool:
            moves = [each for each in await self._moving.all_moves() if each.id not in known]
            return any(_AFTER[MoveState(each.state)] >= _AFTER[at] for each in moves)

        await self._moving.patiently(is_there)
        await run_sync(self._moving.fleet.lab.part, *([stall.host] for stall in self._moving.fleet.stalls[:2]))
        await self._clock.sleep(blow.cut_s)
        await run_sync(self._moving.fleet.lab.heal)

    async def _is_over(self, known: set[str]) -> bool:
        return any(each.id not in known and each.state in _ENDED for each in await self._moving.all_moves())

    async def _dies(self, stall: LabNode, known: set[str], follows_within_s: float) -> bool:
        """Whether it has, or the move came to its end without that."""
        until = self._clock.monotonic() + WITHIN_S
        while stall.daemon.alive and self._clock.monotonic() < until:
            with suppress(HawkerError):
                if await self._is_over(known) and not await self._dead_soon(stall, follows_within_s):
                    return False
            await self._clock.sleep(LOOK_S)
        return not stall.daemon.alive

    async def _dead_soon(self, stall: LabNode, within_s: float) -> bool:
        """What follows the end of a move, its destination does a little later; a snapshot comes behind all moves."""
        until = self._clock.monotonic() + within_s
        while stall.daemon.alive and self._clock.monotonic() < until:
            await self._clock.sleep(LOOK_S)
        return not stall.daemon.alive

    # After it.

    async def _has_written(self, before: int) -> bool:
        return self._writer.acknowledged > before

    async def _judged(self, move: Move | None, source: LabNode, destination: LabNode, machine: Machine) -> list[str]:
        (found,) = await self._moving.patiently(self._sound)
        owners = [stall for stall in (source, destination) if self._moving.has_file(stall)]
        went = move is not None and move.state == MoveState.DONE and move.back_of is None
        wanted = destination if went else source
        if owners != [wanted]:
            found.append(f"the volume's file is at {[each.host.number for each in owners]}, not {wanted.host.number}")
        after = await self._moving.patiently(self._moving.shown)
        kept = [(each.id, each.name, each.private_ip, each.config) for each in (machine, after)]
        if self._moving.snapshot and await run_sync(self._moving.content_at, wanted) != self._moving.content:
            found.append("the snapshot has other content than when it was taken")
        if kept[0] != kept[1]:
            found.append("the machine has another name, address or config")
        return found

    async def _sound(self) -> tuple[list[str]]:
        return (await self._writer.broken(self._port),)


class ReclaimedMove:
    """A move whose destination is lost with its machine running: the source takes the machine back, the lost node
    returns. Nobody may write meanwhile: what the destination acknowledges is given up. `place` is where a daemon dies:
    of the source, which has been told so, or of the destination, which is told when it returns; empty when none does.
    """

    def __init__(self, moving: MovingMachine, source: LabNode, destination: LabNode, place: str) -> None:
        self._moving = moving
        self._source = source
        self._destination = destination
        self._place = place
        self._source_dies = place.startswith(_AT_SOURCE)

    async def lose_and_take_back(self, move_id: str) -> None:
        """The move is done. Once this returns the machine runs at its source and both nodes are idle. Raises
        `HawkerError`, also when nobody dies at the place."""
        await run_sync(self._destination.daemon.lose)
        await self._moving.patiently(self._is_lost)

        async def order() -> bool:
            await self._revive()
            wish = TakeBackRequest(accept_loss=True, now=True)
            await self._moving.broker.call(RECLAIM_MOVE, params=MoveParams(move_id=move_id), body=wish)
            return True

        await self._moving.patiently(order)
        await self._moving.patiently(self._has_died)
        await self._revive()
        await self._moving.patiently(self._moving.runs)
        await run_sync(self._return)
        await self._moving.patiently(self._moving.everybody_is_here)
        await self._moving.patiently(self._has_given_up)

    async def _is_lost(self) -> bool:
        nodes = (await self._moving.broker.call(LIST_NODES)).nodes
        return any(node.id == self._destination.id and node.state == Fate.DOWN for node in nodes)

    async def _revive(self) -> None:
        if not self._source.daemon.alive:
            self._source_dies = False
            await run_sync(self._source.restart)

    async def _has_died(self) -> bool:
        """Of the source: it has, or is not to."""
        return not self._source_dies or not self._source.daemon.alive

    def _return(self) -> None:
        daemon = self._destination.daemon
        if self._place.startswith(_AT_RETURN):
            daemon.launch(failpoint=self._place).ended()
        daemon.launch(failpoint=None if self._place else LISTING).wait_ready()

    async def _has_given_up(self) -> bool:
        return not self._moving.has_file(self._destination) and await self._moving.is_idle(self._destination)

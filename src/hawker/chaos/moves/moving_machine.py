"""The machine of a trial of moves, and the nodes between which it moves, as their client sees them: three real nodes on
hosts of their own, of which the third, which nobody hurts, is the client's broker.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from anyio.to_thread import run_sync

from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.cluster import CORDON_NODE, LIST_NODES, NodeParams
from hawker.api.contract.machine import CREATE_MACHINE, GET_MACHINE, CreateMachineRequest, Machine, MachineParams
from hawker.api.contract.move import LIST_MOVES, ListMovesQuery, Move
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
from hawker.chaos.moves.refusal import BY_CRUN, make_refusable
from hawker.chaos.moves.writers import Writer
from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, HawkerError
from hawker.gossip.contract import Fate
from hawker.log import Secret
from hawker.machine import State
from hawker.record.move import MoveState

APP = "moves"
WITHIN_S = 240.0
LOOK_S = 0.05
_FLAGS = ("--cpus", "16", "--memory-mib", "8192")
_MARKET = "[limits]\nbid_deadline_s = 4.0\n"  # nodes of one busy host need longer than a fleet's
_ENDED = frozenset({MoveState.DONE, MoveState.ABORTED})

T = TypeVar("T")


@contextmanager
def lab_fleet(directory: Path, clock: Clock, *own: str) -> Iterator[LabFleet]:
    """Three nodes in one region, below that directory."""
    (directory / "market.toml").write_text(_MARKET)
    for name in ("street", "nodes"):
        (directory / name).mkdir()
    flags = (*_FLAGS, *own, "--market", str(directory / "market.toml"))
    with NetworkLab(directory / "street", 3) as lab:
        fleet = LabFleet(lab, directory / "nodes", clock, *flags, driver="container")
        if BY_CRUN[-1] in own:
            for stall in fleet.stalls:
                make_refusable(stall.daemon)
        with fleet:
            yield fleet


@asynccontextmanager
async def brokered(fleet: LabFleet) -> AsyncIterator[Client]:
    """A client of the third node."""
    third = fleet.stalls[2]
    async with Client(third.url, Secret(fleet.stalls[0].daemon.token)) as client:
        yield client


class MovingMachine:
    """There is one once it is `set_up`. `snapshot` is that of its volume which follows it; empty without one."""

    def __init__(self, clock: Clock, fleet: LabFleet, broker: Client) -> None:
        self.clock = clock
        self.fleet = fleet
        self.broker = broker
        self.volume = self.snapshot = ""
        self.params = MachineParams(app_name=APP, machine_id="")
        self.content = b""

    async def set_up(self, writer: Writer, reference: str) -> Machine:
        """It runs what that client writes to, from that image."""
        await self.patiently(self.everybody_is_here)
        third = self.fleet.stalls[2].id
        await self.patiently(lambda: self.broker.call(CORDON_NODE, params=NodeParams(node_id=third)))
        app_order = CreateAppRequest(name=APP)
        await self.patiently(lambda: self.broker.call(CREATE_APP, body=app_order, idempotency_key=APP))
        app = AppParams(app_name=APP)
        order = CreateVolumeRequest(name="data", size_gb=1, region="mad", encrypted=False, auto_backup_enabled=False)
        volume = await self.patiently(lambda: self.broker.call(CREATE_VOLUME, params=app, body=order))
        self.volume = volume.id
        body = CreateMachineRequest(name="writes", config=writer.config(reference, volume.id))

        async def made() -> Machine:
            return await self.broker.call(
                CREATE_MACHINE, params=app, body=body, idempotency_key="writes", timeout_s=60.0
            )

        machine = await self.patiently(made)
        self.params = MachineParams(app_name=APP, machine_id=machine.id)
        await self.patiently(self.runs)
        return await self.shown()

    async def at_rest(self, known: set[str], *, begun: bool = True) -> list[Move]:
        """The move, once it has ended and its machine runs; none when there never was one. A node that is back is asked
        by the broker a little after it is known to live."""

        async def ended() -> bool:
            here, moves = await self.everybody_is_here(), await self.all_moves()
            told = not begun or any(each.id not in known for each in moves)
            over = all(each.state in _ENDED for each in moves)
            return here and told and over and await self.runs() and await self.has_followed()

        await self.patiently(ended)
        return [each for each in await self.patiently(self.all_moves) if each.id not in known]

    def ends(self) -> tuple[LabNode, LabNode]:
        """Source and destination of the next move."""
        first, second = self.fleet.stalls[:2]
        return (first, second) if self.has_file(first) else (second, first)

    def has_file(self, stall: LabNode) -> bool:
        return (stall.daemon.place.volumes / self.volume / "disk").exists()

    async def take_snapshot(self) -> None:
        """From here on it follows the volume in each move."""
        params = VolumeParams(app_name=APP, volume_id=self.volume)
        taken = await self.patiently(lambda: self.broker.call(CREATE_SNAPSHOT, params=params))
        self.snapshot = taken.Msg.backup.id
        await self.patiently(self.has_followed)
        here, _ = self.ends()
        self.content = await run_sync(self.content_at, here)

    async def has_followed(self) -> bool:
        """Whether the snapshot, if there is one, is where its volume is, and nowhere else."""
        if not self.snapshot:
            return True
        params = VolumeParams(app_name=APP, volume_id=self.volume)
        listed = await self.broker.call(LIST_SNAPSHOTS, params=params)
        there = [stall for stall in self.fleet.stalls[:2] if self.snapshot_at(stall).exists()]
        whole = [(each.id, each.status, each.node) for each in listed] == [(self.snapshot, "created", None)]
        return whole and there == [self.ends()[0]]

    def snapshot_at(self, stall: LabNode) -> Path:
        return stall.daemon.place.snapshots / self.snapshot

    def content_at(self, stall: LabNode) -> bytes:
        return digest_of(self.snapshot_at(stall))

    async def again(self, stall: LabNode, failpoint: str | None = None) -> None:
        """Another life of its daemon, once what the last one began is done and all know each other: a move that is over
        at its source may have a run left at its destination, which would die of this failpoint while it boots."""
        if stall.daemon.alive:
            await self.patiently(partial(self.is_idle, stall))

        def begin() -> None:
            if stall.daemon.alive:
                stall.daemon.kill()
            stall.daemon.launch(failpoint=failpoint).wait_ready()

        await run_sync(begin)
        await self.patiently(self.everybody_is_here)
        await self.patiently(self.runs)

    def client_of(self, stall: LabNode) -> Client:
        return Client(stall.url, Secret(self.fleet.stalls[0].daemon.token))

    async def is_idle(self, stall: LabNode) -> bool:
        async with self.client_of(stall) as client:
            under_way = ListRunsQuery(state=(RunState.QUEUED, RunState.ACTIVE))
            return not (await client.call(LIST_RUNS, query=under_way)).runs

    async def everybody_is_here(self) -> bool:
        nodes = (await self.broker.call(LIST_NODES)).nodes
        return len(nodes) == 3 and all(node.state == Fate.ALIVE and node.capacity is not None for node in nodes)

    async def shown(self) -> Machine:
        return await self.broker.call(GET_MACHINE, params=self.params)

    async def runs(self) -> bool:
        return (await self.shown()).state is State.STARTED

    async def all_moves(self) -> Sequence[Move]:
        """Of the app, as the nodes that answer tell them."""
        found = await self.broker.call(LIST_MOVES, query=ListMovesQuery(app=APP))
        return found.moves

    async def patiently(self, ask: Callable[[], Awaitable[T | None]]) -> T:
        """Its first answer that is none of None, False; a node that is away is asked again. Raises
        `DeadlineExceeded`."""
        until, why = self.clock.monotonic() + WITHIN_S, ""
        while self.clock.monotonic() < until:
            try:
                if (found := await ask()) is not None and found is not False:
                    return found
            except HawkerError as error:
                why = str(error)
            await self.clock.sleep(LOOK_S)
        raise DeadlineExceeded(f"what the trial waits for was not seen within {WITHIN_S:g} s: {why}")


def digest_of(file: Path) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()

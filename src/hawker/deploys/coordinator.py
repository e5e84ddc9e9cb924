"""Who drives a deploy. Three nodes, the voters, keep its register; whoever has the term that a majority of them granted
last coordinates it, and writes down at a majority what must not be lost with its host. A run of a deploy on any other
node follows what is written there, and takes over when its coordinator is down and its term has run out.

The coordinator's own records count the rest: `(term, serial)` orders them and what the voters have.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

import anyio
import anyio.lowlevel
import msgspec
import zstandard

from hawker.api.contract.deploy import (
    ANNOUNCE_TERM,
    AnnounceTermRequest,
    RegisterAnswer,
)
from hawker.api.contract.market import OrderedApp
from hawker.clock import Clock
from hawker.deploys.deploy_table import DeployTable
from hawker.deploys.term_fence import written_term
from hawker.deploys.voters import AGAIN_S, ANNOUNCE_S, CoordinatingNodes, TermLost, Voters
from hawker.errors import HawkerError, NotFound, Unavailable
from hawker.ids import AppName, NodeId
from hawker.record.app import APPS, RELEASES, AppRecord, ReleaseRecord
from hawker.record.deploy import DEPLOY_SLOTS, DEPLOYS, DeployRecord, SlotRecord, deploy_key, slot_key
from hawker.store.contract import Tx

T = TypeVar("T")

RENEW_S = 3.0
VALID_S = 8.0
"""The seconds, from when a renewal that a majority answered was sent, after which its coordinator begins nothing more.
They are fewer than a voter's `TERM_S`, so that two never coordinate at once."""
FOLLOW_S = 1.0
_KEPT_S = 3.0
_AT_ONCE = 16
_MOST_BYTES = 64 * 1024 * 1024


class DeployState(msgspec.Struct, frozen=True, kw_only=True):
    """A whole deploy, as the voters keep it."""

    app: OrderedApp
    release: ReleaseRecord
    deploy: DeployRecord
    slots: tuple[SlotRecord, ...]


class Term(Protocol):
    """The term in which a deploy's moves are made; they ask it before they change anything."""

    @property
    def inherited(self) -> bool:
        """Whether another node coordinated the deploy before."""

    @property
    def text(self) -> str | None:
        """The text of the term that goes along with a call that changes a machine."""

    async def check(self) -> None:
        """Goes no further when another node may have taken over."""

    async def keep(self) -> None:
        """Returns once what is written down here would outlive this host."""


class AloneTerm:
    """The term of a node that keeps its deploys alone."""

    text: str | None = None
    inherited = False

    async def check(self) -> None:
        return None

    async def keep(self) -> None:
        return None


class HeldTerm:
    """Keeps `Term` while a majority has granted it to this node. `sent` is when the last call was sent that a majority
    answered, by the monotonic clock."""

    def __init__(self, voters: Voters, table: DeployTable, number: int, sent: float, *, inherited: bool) -> None:
        self.voters = voters
        self.number = number
        self.inherited = inherited
        self.scope: anyio.CancelScope | None = None  # of what is done in it, which is cut short when it is lost
        self._table = table
        self._sent = sent
        self._kept = 0
        self._lock = anyio.Lock()
        self._told: set[NodeId] = set()

    @property
    def text(self) -> str:
        return written_term(self.voters.version, self.number)

    async def check(self) -> None:
        if self.voters.clock.monotonic() - self._sent >= VALID_S:
            await self._lose()

    async def _lose(self) -> None:
        """Raises `TermLost` where nothing is done in it yet."""
        if self.scope is None:
            raise TermLost
        self.scope.cancel()
        await anyio.lowlevel.checkpoint()

    async def keep(self) -> None:
        """Writes what is here to the voters. Those who wait together are served by one write."""
        wanted = self._record().serial
        while self._kept < wanted:
            async with self._lock:
                if self._kept < wanted:
                    await self._write()
            if self._kept < wanted:
                await self.check()
                await self.voters.clock.sleep(AGAIN_S)
        await self.check()

    async def _write(self) -> None:
        state, serial, ended = state_of(self._table, self.voters)
        sent = self.voters.clock.monotonic()
        try:
            if await self.voters.write(self.number, serial, state, ended=ended):
                self._kept, self._sent = serial, sent
        except TermLost:
            await self._lose()

    async def renew(self) -> None:
        """Now and then, until it is lost; nodes that come back are told of it."""
        clock = self.voters.clock
        while True:
            await clock.sleep(RENEW_S)
            if self._kept < self._record().serial:
                async with self._lock:
                    await self._write()
            else:
                await self._renew()
            await self.check()
            await self.announce()

    async def _renew(self) -> None:
        sent = self.voters.clock.monotonic()
        try:
            if await self.voters.write(self.number):
                self._sent = sent
        except TermLost:
            await self._lose()

    async def announce(self) -> None:
        """Tells the term to every living node that knows the app, once."""
        nodes = self.voters.nodes
        alive = {node.id for node in nodes.nodes() if node.alive}
        left = [node for node in nodes.nodes_of_app(AppName(self.voters.app)) if node in alive - self._told]
        body = AnnounceTermRequest(term=self.number)

        async def one_after_another() -> None:
            while left:
                node = left.pop()
                with anyio.move_on_after(ANNOUNCE_S), suppress(HawkerError):
                    await nodes.caller(node).call(ANNOUNCE_TERM, params=self.voters.params, body=body)
                    self._told.add(node)

        async with anyio.create_task_group() as tasks:
            for _ in left[:_AT_ONCE]:
                tasks.start_soon(one_after_another)

    def _record(self) -> DeployRecord:
        return self._table.find(self._table.store, self.voters.app, self.voters.version)


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The part that one run has in a deploy. `nodes` raises `Unavailable` while they are not known yet."""

    app: str
    version: int
    table: DeployTable
    nodes: Callable[[], CoordinatingNodes]
    clock: Clock

    async def lead(self, do: Callable[[Term], Awaitable[T]]) -> T | None:
        """`do` while this node coordinates the deploy, from the beginning each time that it does. None when the deploy
        ended elsewhere. Raises what `do` raises."""
        while self._record.ended_at is None:
            if not self._record.is_replicated:
                return await do(AloneTerm())
            try:
                term = await self.take()
            except (Unavailable, TermLost):
                term = None
            if term is None:
                await self.clock.sleep(FOLLOW_S)
            elif self._record.ended_at is None:
                found = await _while_held(term, do)
                if found:
                    return found[0]
        return None

    async def take(self) -> HeldTerm | None:
        """A new term, with what was written in those before; None while another node coordinates the deploy, whose
        state is then what is here. Raises `Unavailable` while too few voters answer."""
        voters = self._voters()
        found = await voters.read()
        await self._adopt(found)
        newest = max(found, key=lambda each: each.granted)
        if newest.holder not in ("", voters.nodes.me) and self._lives(NodeId(newest.holder)):
            return None
        number, sent = newest.granted + 1, self.clock.monotonic()
        found = await voters.grant(number)
        if sum((each.granted, each.holder) == (number, voters.nodes.me) for each in found) < voters.majority:
            return None
        await self._adopt(found)
        me = voters.nodes.me
        inherited = self._record.inherited or self._record.coordinator not in ("", me)
        term = HeldTerm(voters, self.table, number, sent, inherited=inherited)
        await self.table.store.write(
            lambda tx: self.table.change(tx, self.app, self.version, term=number, coordinator=me, inherited=inherited)
        )
        await self.write_back(term)
        if not self._record.kept:
            await self.table.store.write(lambda tx: self.table.change(tx, self.app, self.version, kept=True))
        await term.announce()
        return term

    async def write_back(self, term: HeldTerm) -> None:
        """Writes what a majority has said, and this node goes by from now on, to a majority in its own term."""
        await term.keep()

    async def keep_now(self) -> None:
        """Returns once what is written down here is at a majority, under this node's last term, which may change
        meanwhile. Raises `Unavailable`."""
        deadline = self.clock.monotonic() + _KEPT_S
        while True:
            record, voters = self._record, self._voters()
            state, serial, ended = state_of(self.table, voters)
            with suppress(TermLost):
                if await voters.write(record.term, serial, state, ended=ended):
                    return
            if self.clock.monotonic() >= deadline or self._record.coordinator != self.nodes().me:
                raise Unavailable(f"too few of the nodes that keep deploy {self.version} of app '{self.app}' took it")
            await self.clock.sleep(AGAIN_S)

    async def _adopt(self, found: list[RegisterAnswer]) -> None:
        newest, record = max(found, key=lambda each: (each.term, each.number)), self._record
        if (newest.term, newest.number) > (record.term, record.serial):
            state, nodes = opened_state(newest.state, self.nodes()), self.nodes()
            await self.table.store.write(lambda tx: put_state(tx, state, nodes))

    def _lives(self, node: NodeId) -> bool:
        return any(each.id == node and each.alive for each in self.nodes().nodes())

    def _voters(self) -> Voters:
        """Raises `NotFound` once the app is destroyed."""
        app = self.table.store.get(APPS, self.app)
        if app is None:
            raise NotFound("app not found")
        return Voters(self.app, app.id, self.version, self._record.voters, self.nodes(), self.clock)

    @property
    def _record(self) -> DeployRecord:
        return self.table.find(self.table.store, self.app, self.version)


async def _while_held(term: HeldTerm, do: Callable[[Term], Awaitable[T]]) -> list[T]:
    """What `do` gave, or nothing when the term was lost before."""
    found: list[T] = []
    failed: list[Exception] = []
    async with anyio.create_task_group() as tasks:
        term.scope = tasks.cancel_scope

        async def work() -> None:
            try:
                found.append(await do(term))
            except HawkerError as error:
                failed.append(error)
            tasks.cancel_scope.cancel()

        tasks.start_soon(term.renew)
        tasks.start_soon(work)
    if failed:
        raise failed[0]
    return found


def state_of(table: DeployTable, voters: Voters) -> tuple[bytes, int, bool]:
    """Sealed; the deploy's serial, and whether it has ended. Raises `NotFound`."""
    with table.store.snapshot() as reader:
        deploy = table.find(reader, voters.app, voters.version)
        slots = tuple(table.slots(reader, voters.app, voters.version))
        app, release = reader.get(APPS, voters.app), reader.get(RELEASES, deploy_key(voters.app, voters.version))
        if app is None or release is None:
            raise NotFound(f"app '{voters.app}' has no release {voters.version}")
        fields = msgspec.structs.asdict(app)
        fields.pop("idempotency_key")
        fields.pop("home")
        carried = OrderedApp(**fields, luggage=voters.nodes.pack(reader, app))
    state = DeployState(app=carried, release=release, deploy=deploy, slots=slots)
    return voters.nodes.seal(_packed(state)), deploy.serial, deploy.ended_at is not None


def size_of(deploy: DeployRecord, slots: Sequence[SlotRecord], release: ReleaseRecord) -> int:
    """The size in bytes of what is written at each change, but for the app's secrets."""
    return len(_packed((deploy, slots, release)))


def _packed(value: object) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(value))


def opened_state(sealed: bytes, nodes: CoordinatingNodes) -> DeployState:
    """The state of a deploy that a voter kept as `sealed`. Raises `Unavailable`."""
    packed = nodes.open(sealed)
    try:
        if zstandard.frame_content_size(packed) > _MOST_BYTES:
            raise Unavailable("a deploy is too large for this node")
        return msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(packed), type=DeployState)
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise Unavailable("a deploy is not understood by this version") from error


def put_state(tx: Tx, state: DeployState, nodes: CoordinatingNodes) -> None:
    """Writes `state` over what is here of the deploy, and makes its app known here."""
    fields = msgspec.structs.asdict(state.app)
    packed = fields.pop("luggage")
    app = AppRecord(**{**fields, "name": AppName(state.app.name)})
    there = tx.get(APPS, app.name)
    if there is None or there.home is not None:
        nodes.unpack(tx, app, packed)
    version = state.deploy.version
    key = deploy_key(app.name, version)
    tx.put(RELEASES, key, state.release)
    tx.put(DEPLOYS, key, state.deploy)
    for slot in state.slots:
        tx.put(DEPLOY_SLOTS, slot_key(app.name, version, slot.number), slot)

"""The nodes that keep a deploy's register: which they are, and what a majority of them answers."""

from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Protocol

import anyio

from hawker.api.caller import Caller
from hawker.api.contract.deploy import (
    GRANT_TERM,
    READ_REGISTER,
    WRITE_REGISTER,
    GrantTermRequest,
    RegisterAnswer,
    RegisterParams,
    WriteRegisterRequest,
)
from hawker.api.directory import Node
from hawker.clock import Clock
from hawker.errors import HawkerError, NotFound, Unavailable
from hawker.ids import AppName, NodeId
from hawker.record.app import AppRecord
from hawker.store.contract import Reader, Tx
from hawker.value_object import ValueObject

VOTERS = 3
ANNOUNCE_S = 2.0
"""The seconds that one node is given to answer, among several that are told or asked."""
AGAIN_S = 0.5


class CoordinatingNodes(Protocol):
    """The voters of a deploy as its coordinator reaches them."""

    @property
    def me(self) -> NodeId: ...

    def caller(self, node: NodeId) -> Caller:
        """The way to its peer API. Raises `Unavailable`."""

    def nodes(self) -> Sequence[Node]: ...

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]: ...

    def pack(self, reader: Reader, app: AppRecord) -> bytes: ...

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None: ...

    def seal(self, data: bytes) -> bytes: ...

    def open(self, sealed: bytes) -> bytes: ...


class TermLost(Exception):
    """Another node may coordinate the deploy from now on."""


class Voters(ValueObject, frozen=True):
    """The calls to the voters of one deploy, which are answered by a majority or count as not answered."""

    app: str
    """The name of the app."""
    app_id: str
    """The id, so that nobody votes about another app of that name."""
    version: int
    """The number of the release that is deployed."""
    all: tuple[NodeId, ...]
    nodes: CoordinatingNodes
    clock: Clock

    @property
    def majority(self) -> int:
        return len(self.all) // 2 + 1

    @property
    def params(self) -> RegisterParams:
        return RegisterParams(app_id=self.app_id, version=str(self.version))

    async def read(self) -> list[RegisterAnswer]:
        """The answers of the voters to a read of the register. Raises `Unavailable` where a majority does not
        answer."""

        async def one(caller: Caller) -> RegisterAnswer:
            return await caller.call(READ_REGISTER, params=self.params)

        return await self._asked(one)

    async def grant(self, term: int) -> list[RegisterAnswer]:
        """The answers of the voters to a question for `term`. Raises `Unavailable` where a majority does not answer."""
        body = GrantTermRequest(app=self.app, term=term, node=self.nodes.me, voters=self.all)

        async def one(caller: Caller) -> RegisterAnswer:
            return await caller.call(GRANT_TERM, params=self.params, body=body)

        return await self._asked(one)

    async def write(self, term: int, number: int = 0, state: bytes | None = None, *, ended: bool = False) -> bool:
        """Whether a majority took it. Raises `TermLost` where one voter granted a later term."""
        body = WriteRegisterRequest(
            app=self.app, term=term, node=self.nodes.me, voters=self.all, number=number, state=state, ended=ended
        )

        async def one(caller: Caller) -> RegisterAnswer:
            return await caller.call(WRITE_REGISTER, params=self.params, body=body)

        try:
            found = await self._asked(one)
        except Unavailable:
            return False
        if any(each.granted > term for each in found):
            raise TermLost
        return sum(each.granted == term and each.holder == self.nodes.me for each in found) >= self.majority

    async def heard(self) -> dict[NodeId, RegisterAnswer]:
        """The registers of all voters that answer, be they a majority or not."""
        found: dict[NodeId, RegisterAnswer] = {}

        async def one(node: NodeId) -> None:
            with suppress(HawkerError):
                found[node] = await self.nodes.caller(node).call(READ_REGISTER, params=self.params)

        async with anyio.create_task_group() as tasks:
            for node in self.all:
                tasks.start_soon(one, node)
        return found

    async def _asked(self, ask: Callable[[Caller], Awaitable[RegisterAnswer]]) -> list[RegisterAnswer]:
        """Of all that answer; the last ones are not waited for long once a majority has."""
        found: list[RegisterAnswer] = []
        async with anyio.create_task_group() as tasks:

            async def one(node: NodeId) -> None:
                try:
                    found.append(await ask(self.nodes.caller(node)))
                except HawkerError:
                    return
                if len(found) >= self.majority:
                    tasks.cancel_scope.deadline = min(tasks.cancel_scope.deadline, anyio.current_time() + AGAIN_S)

            for node in self.all:
                tasks.start_soon(one, node)
        if len(found) < self.majority:
            raise Unavailable(f"too few of the nodes {', '.join(self.all)} answer, which keep this deploy")
        return found


async def capable_voters(
    app_id: str, version: int, nodes: CoordinatingNodes
) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...]]:
    """The voters of a new deploy, and nodes that would have been some and are of a version that keeps no deploys."""
    params, old = RegisterParams(app_id=app_id, version=str(version)), set[NodeId]()

    async def ask(node: NodeId) -> None:
        with anyio.move_on_after(ANNOUNCE_S):
            try:
                await nodes.caller(node).call(READ_REGISTER, params=params)
            except NotFound:
                old.add(node)
            except HawkerError:
                return  # it is away or slow; two of three are enough

    while True:
        chosen, known = chosen_voters(app_id, version, nodes, old), len(old)
        async with anyio.create_task_group() as tasks:
            for node in chosen:
                if node != nodes.me:
                    tasks.start_soon(ask, node)
        if len(old) == known:
            return chosen, tuple(sorted(old))


def chosen_voters(
    app_id: str, version: int, nodes: CoordinatingNodes, without: Container[NodeId] = ()
) -> tuple[NodeId, ...]:
    """This node and two others that live, of other regions before its own, by rendezvous hashing; none where there are
    fewer, since two could not do without each other. None is one of `without`."""
    alive = {node.id: node for node in nodes.nodes() if node.alive}
    home = alive.get(nodes.me)
    others = [node for node in alive.values() if node.id != nodes.me and node.id not in without]
    if home is None or len(others) < VOTERS - 1:
        return ()
    return _spread([home], others, partial(_weight, app_id, version))


def taken_voters(
    app_id: str, version: int, nodes: CoordinatingNodes, heard: Container[NodeId], lost: Container[NodeId]
) -> tuple[NodeId, ...]:
    """This node, voters that were `heard`, and then others that live, but for those that are `lost`; at most three."""
    alive = [node for node in nodes.nodes() if (node.alive or node.id == nodes.me) and node.id not in lost]
    first = [node for node in alive if node.id == nodes.me or node.id in heard]
    others = [node for node in alive if node not in first]
    return _spread(first, others, partial(_weight, app_id, version))


def _weight(app_id: str, version: int, node: Node) -> bytes:
    return blake2b(f"{node.id}/{app_id}/{version}".encode(), digest_size=8).digest()


def _spread(chosen: Sequence[Node], others: Sequence[Node], weight: Callable[[Node], bytes]) -> tuple[NodeId, ...]:
    """Those, and others of other regions before theirs, until there are enough."""
    found = list(chosen)
    while len(found) < VOTERS and (left := [node for node in others if node not in found]):
        regions = {node.region for node in found}
        found.append(max(left, key=lambda node: (node.region not in regions, weight(node))))
    return tuple(node.id for node in found)

"""The other nodes of the fleet, as moves and deploys need them: the way to each, who could take something, and what
only nodes of the cluster can read. There once the process answers; a node alone has none.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from hawker.api.caller import Caller
from hawker.api.directory import Node
from hawker.errors import NotServed, Unavailable
from hawker.fsm.contract import Resource, WhenBusy
from hawker.ids import AppName, MachineId, NodeId, RunId
from hawker.record.app import AppRecord
from hawker.store.contract import Reader, Tx


class OtherNodes(Protocol):
    @property
    def me(self) -> NodeId: ...

    def caller(self, node: NodeId) -> Caller:
        """The way to its peer API. Raises `Unavailable`."""

    def nodes(self) -> Sequence[Node]:
        """All that are known, this one too."""

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        """All that know it, as far as is known here."""

    def seen_at(self, machine: MachineId) -> NodeId | None:
        """Where the catalog has the machine, as far as it is known here."""

    def pack(self, reader: Reader, app: AppRecord) -> bytes: ...

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None: ...

    def seal(self, data: bytes) -> bytes:
        """For nodes of the cluster alone."""

    def open(self, sealed: bytes) -> bytes:
        """Raises `Unavailable` when it was sealed with a key that is not known here."""


class LateNodes:
    """Others that are there once the process answers, for what is built before that."""

    def __init__(self) -> None:
        self._others: OtherNodes | None = None

    def meet(self, others: OtherNodes) -> None:
        self._others = others

    @property
    def there(self) -> OtherNodes:
        """Raises `Unavailable` before: runs are resumed while a node is on its way up."""
        if self._others is None:
            raise Unavailable("this node does not know of any others")
        return self._others

    def check(self) -> None:
        """Asked by what answers. Raises `NotServed` on a node that is alone."""
        if self._others is None:
            raise NotServed("this node is in no cluster, so there is nowhere to move anything")


class LateRuns:
    """Begins runs, for steps: the runner is built after what steps are given."""

    def __init__(self) -> None:
        self._accept: Callable[..., RunId] | None = None

    def meet(self, accept: Callable[..., RunId]) -> None:
        self._accept = accept

    def accept(self, tx: Tx, flow: str, resource: Resource, input: msgspec.Struct) -> RunId:
        """In line behind what is under way there."""
        assert self._accept is not None, "a worker is assembled before it runs anything"
        return self._accept(tx, flow, resource, input, when_busy=WhenBusy.QUEUE)

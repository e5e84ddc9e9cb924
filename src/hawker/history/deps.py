"""What archiving needs of the node that it is part of. The worker's own `Deps` has it all."""

from typing import Protocol, TypeAlias, TypeVar

import msgspec

from hawker.archive.archive import Archive
from hawker.clock import Clock
from hawker.fsm.contract import StepContext
from hawker.ids import MachineId
from hawker.record.history import ArchiveRecord
from hawker.store.contract import Store, Tx

I = TypeVar("I", bound=msgspec.Struct)  # noqa: E741 - a flow's input


class DestroyedMachines(Protocol):
    """The worker's table of machines, as far as it concerns those that are destroyed."""

    def archived(self, tx: Tx, machine_id: MachineId, record: ArchiveRecord) -> None:
        """Its history is in the archive, whole."""


class HistoryDeps(Protocol):
    """`archive` is None where histories are not kept."""

    @property
    def store(self) -> Store: ...
    @property
    def table(self) -> DestroyedMachines: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def archive(self) -> Archive | None: ...


Context: TypeAlias = StepContext[HistoryDeps, I]

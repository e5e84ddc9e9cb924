"""What the operations and flows of volumes need of their node. The worker's own `Deps` has it all."""

from typing import Protocol, TypeAlias, TypeVar

import msgspec

from hawker.clock import Clock
from hawker.fsm.contract import StepContext
from hawker.runtime.driver import Driver
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.volume.copies import Copies
from hawker.volume.disks import Disks
from hawker.volume.table import VolumeTable

I = TypeVar("I", bound=msgspec.Struct)  # noqa: E741 - a flow's input


class VolumeDeps(Protocol):
    """`disks` and `copies` are None on a node that has no volumes."""

    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def driver(self) -> Driver: ...
    @property
    def volumes(self) -> VolumeTable: ...
    @property
    def disks(self) -> Disks | None: ...
    @property
    def copies(self) -> Copies | None: ...


Context: TypeAlias = StepContext[VolumeDeps, I]

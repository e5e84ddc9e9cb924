"""The memory of a machine that was suspended by a snapshot, as files that go to another node with its disks. Only what
wrote such a memory, on a cpu of the same model, goes on from it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from hawker.ids import MachineId
from hawker.runtime.spec import InstanceSpec


class SavedBy(msgspec.Struct, frozen=True, kw_only=True):
    """The VMM and the cpu that write and read the memories of a node's machines."""

    vmm: str  # its name and version in its own words, and whether it emulates
    cpu_model: str  # of the host, in its kernel's words

    def lacks(self, here: "SavedBy") -> str:
        """The reason why a memory that this wrote is not resumed `here`; "" when it is."""
        if self.vmm != here.vmm:
            return f"its memory was saved by {self.vmm}, and the node has {here.vmm or 'nothing that resumes one'}"
        if self.cpu_model != here.cpu_model:
            return f"its memory was saved on a cpu of model {self.cpu_model}, and the node has {here.cpu_model}"
        return ""


@runtime_checkable
class SavedMemories(Protocol):
    """The calls that only a driver that suspends by snapshots has. The names of files are the driver's own."""

    async def resumes(self) -> SavedBy:
        """The VMM and cpu by which memories must be written to be resumed here. Raises `CannotStart`."""

    async def memory_files(self, machine_id: MachineId) -> Mapping[str, int]:
        """The files from which a suspended machine goes on, but its disks: size in bytes by name, in the order in which
        they are put in place. None of a machine that is not suspended. Nothing writes to them, and no process of the
        machine is left. Raises `SnapshotLost`."""

    def memory_place(self, machine_id: MachineId, name: str) -> Path:
        """The path of a file of this name. Raises `BadRequest` for a name that no such file has."""

    def came(self, name: str) -> str:
        """The name under which a file is put in place at another node before `take_in`."""

    async def make_place(self, machine_id: MachineId) -> None:
        """Make the directories for these files."""

    async def take_in(self, spec: InstanceSpec) -> None:
        """Take in a machine whose files are all in place under the names that they came by: it is suspended here from
        now on, and goes on with the disks and the network of `spec`, which this node would start it with. A repeated
        call is no change. Raises `SnapshotLost` when it cannot."""

    async def image_digest(self, file: Path) -> str:
        """The digest of an image's file: the same for the same bytes only. A guest that goes on has read some of it."""

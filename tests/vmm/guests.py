"""What a played VMM does with its guest, and a guest that is nothing but the balloon that follows at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

SNAPSHOT = b"the memory of a guest that is not there"


@dataclass(frozen=True, slots=True)
class Machine:
    """What a VMM was told before it let its guest go. `memory_mib` without what the balloon holds; `drives` by name."""

    command_line: str
    memory_mib: int
    vsock: str
    drives: Mapping[str, str]


class Guest(Protocol):
    """Paths are as the VMM has them. Raises `OSError` for files that are not there, or are not of a snapshot."""

    def start(self, machine: Machine) -> None: ...

    def give(self, memory_mib: int) -> None:
        """It has so much of its memory from now on."""

    def hold(self) -> None: ...

    def go_on(self) -> None: ...

    def save(self, memory: Path) -> None: ...

    def restore(self, memory: Path) -> None:
        """It is held still."""

    def end(self) -> None: ...


@dataclass
class NoGuest:
    """Keeps `Guest`. `did` is what it was told."""

    did: list[str] = field(default_factory=list)

    def start(self, machine: Machine) -> None:
        self.did.append("start")

    def give(self, memory_mib: int) -> None:
        """Whatever it is."""

    def hold(self) -> None:
        self.did.append("hold")

    def go_on(self) -> None:
        self.did.append("go on")

    def save(self, memory: Path) -> None:
        self.did.append("save")
        memory.write_bytes(SNAPSHOT)

    def restore(self, memory: Path) -> None:
        self.did.append("restore")
        if memory.read_bytes() != SNAPSHOT:
            raise OSError(0, "not a snapshot")

    def end(self) -> None:
        self.did.append("end")

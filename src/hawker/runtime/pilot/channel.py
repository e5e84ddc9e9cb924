"""How a pilot is reached: which files it or its VMM inherits, and how a connection to it begins.

Three kinds: a unix socket that the pilot itself listens on; virtio serial ports, a socket each; vsock through the
socket that a VMM makes for it. What differs is here; everything after is frames.
"""

from contextlib import AbstractContextManager
from typing import Protocol

from hawker.runtime.driver import OutputChunk
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceSpec


class Channel(Protocol):
    """Remembers nothing. Kept by `UnixSocket`, `SerialPorts` and `Vsock`."""

    def files(
        self, run: RunDir, spec: InstanceSpec, *, resumed: bool = False
    ) -> AbstractContextManager[tuple[int, ...]]:
        """Fresh files for a pilot that never ran; the descriptors are inherited as 3, 4, ... by what is launched. One
        of them holds the journal's lock, and goes on to hold it there. A pilot that is `resumed` from a snapshot goes
        on with the journal and the output that it has."""

    def connect(self, run: RunDir) -> Connection:
        """Raises `Unavailable` when nobody listens, or every way in is taken. One that has not come up yet will find
        the connection waiting."""

    async def pid(self, run: RunDir) -> int | None:
        """The process of this host that holds the journal's lock, pilot or keeper, where the daemon that started it
        died before it wrote that down. Raises `Unavailable` when it has to be asked and does not answer."""

    def output(self, run: RunDir, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        """As `Driver.output`."""

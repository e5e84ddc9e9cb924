"""The disk below the data directory: what of it can be promised to machines and volumes.

What is promised are the files of machines' layers and of volumes, whose sizes admission adds up; they are sparse, so a
part of them is stored already. Everything else (images, snapshots, logs, the store, other users of the disk) has no
promise, and takes from what is free. So what can be promised in all is what is free and what is stored of promises,
whatever of them is written meanwhile. Adding up what is stored looks at every file, so it is done now and then.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from hawker.clock import Clock
from hawker.fair.threads import Pool, in_thread
from hawker.host.facts import DiskSpace, disk_of
from hawker.host.sparse import allocated_bytes, shares_blocks
from hawker.log import bind
from hawker.place import Place
from hawker.value_object import ValueObject

MEASURE_EVERY_S = 5.0
_PROMISED = ("volumes/*/disk", "machines/*/disks/*", "machines/*/disks/*.volumes/*", "machines/*/layers/*/disk")

_log = bind("hawker.disk")


class _Measured(ValueObject, frozen=True):
    """`free_bytes` at the moment at which promises had stored `stored_bytes`."""

    free_bytes: int
    stored_bytes: int


class PromisedDisk:
    """`look` says how large the disk is and what is free."""

    def __init__(self, place: Place, look: Callable[[Path], DiskSpace] = disk_of) -> None:
        self._place = place
        self._look = look
        self._shares: bool | None = None
        self._measured = _Measured(free_bytes=self.free_bytes, stored_bytes=0)

    @property
    def free_bytes(self) -> int:
        return self._look(self._place.root).free_bytes

    @property
    def usable_bytes(self) -> int:
        """Never more than when it was measured last. Who has a promise and writes since makes it less until the next
        look; who gives back makes room for at most as much of what others wrote since."""
        return min(self.free_bytes, self._measured.free_bytes) + self._measured.stored_bytes

    async def serve(self, clock: Clock) -> None:
        while True:
            try:
                await in_thread(Pool.HOST, self.measure)
            except OSError as error:
                _log.warning("the data directory cannot be measured", extra={"error": str(error)})
            await clock.sleep(MEASURE_EVERY_S)

    def measure(self) -> None:
        """Look at every file of a promise. Where snapshots share blocks with volumes, a volume that is written anew
        needs new ones, so what snapshots store does not count as stored of volumes."""
        if self._shares is None:
            self._shares = shares_blocks(self._place.root)
        stored = sum(_stored(file) for pattern in _PROMISED for file in self._place.root.glob(pattern))
        if self._shares:
            stored = max(0, stored - sum(map(_stored, self._snapshots())))
        self._measured = _Measured(free_bytes=self.free_bytes, stored_bytes=stored)

    def _snapshots(self) -> Iterator[Path]:
        return self._place.snapshots.glob("*")


def _stored(file: Path) -> int:
    """Nothing for one that went meanwhile, and for directories."""
    try:
        return allocated_bytes(file) if file.is_file() else 0
    except FileNotFoundError:
        return 0

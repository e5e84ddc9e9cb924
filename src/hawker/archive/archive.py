"""A node's archive: histories go out as files, and come back as what they were.

Every call may be repeated. A file is prepared in a directory of the node's own, under its machine's name, and goes to a
key that follows from the machine's id alone; so a history that is written twice is there once.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from shutil import rmtree

import anyio

from hawker.archive import history_file, pack
from hawker.archive.backend import ArchiveBackend
from hawker.archive.failure import ArchiveDamaged, of_os
from hawker.archive.history_file import History
from hawker.errors import NotFound, Unavailable
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.ids import MachineId

MIB = 1 << 20
MOST_PACKED_BYTES = 128 * MIB
MOST_BYTES = (
    256 * MIB
)  # unpacked; the longest history that there can be has 64 configs of 1 MiB, and more runs than that
READ_WITHIN_S = 60.0
_READERS = 2
_MACHINE_ID = re.compile(r"[0-9a-f]{14}")


def key_of(machine_id: str) -> str:
    """Spread over directories by its first two letters. Raises `NotFound` for what is no machine's id: it never gets
    into a path."""
    if not _MACHINE_ID.fullmatch(machine_id):
        raise NotFound(f"{machine_id!r} is no machine's id")
    return f"{machine_id[:2]}/{machine_id}.sqlite.zst"


class Archive:
    """`directory` is where files are while they are on their way; nobody else uses it."""

    def __init__(self, place: ArchiveBackend, directory: Path) -> None:
        self._place = place
        self._directory = directory
        self._numbers = count()
        self._readers = anyio.CapacityLimiter(_READERS)

    @property
    def name(self) -> str:
        return self._place.name

    async def check(self) -> None:
        """Checks that histories can be sent. Raises `Refused` or `Unavailable` when histories cannot be sent."""
        await self._place.check()

    async def write(self, history: History) -> int:
        """Prepare the file; how large it is. Raises `Unavailable` when the disk does not take it."""
        machine_id = MachineId(history.machine.id)
        async with self._on_disk():
            return await in_thread(Pool.ARCHIVE, self._write, machine_id, history)

    def is_written(self, machine_id: MachineId) -> bool:
        return self._staged(machine_id).exists()

    async def send(self, machine_id: MachineId) -> int:
        """Have the prepared file in the archive; how large it is."""
        staged = self._staged(machine_id)
        async with self._on_disk():
            size = staged.stat().st_size
        await self._place.put(key_of(machine_id), staged)
        inside("sent")
        return size

    async def size(self, machine_id: MachineId) -> int | None:
        """The bytes of a history in the archive, packed; None when the machine is not in it."""
        return await self._place.size(key_of(machine_id))

    async def discard(self, machine_id: MachineId) -> None:
        """Let go of the prepared file."""
        async with self._on_disk():
            await in_thread(Pool.ARCHIVE, _remove, self._staged(machine_id))
        inside("discarded")

    async def read(self, machine_id: str) -> History | None:
        """The history of a machine; None when it is not in the archive. Raises `ArchiveDamaged` when what is there is
        not its history."""
        key = key_of(machine_id)
        with anyio.move_on_after(READ_WITHIN_S):
            async with self._readers, self._room() as room:
                return await self._fetch(key, machine_id, room)
        raise Unavailable(f"the archive {self.name} did not answer within {READ_WITHIN_S:g} s")

    async def _fetch(self, key: str, machine_id: str, room: Path) -> History | None:
        packed, plain = room / "packed", room / "plain"
        try:
            if not await self._place.get(key, packed, MOST_PACKED_BYTES):
                return None
            await in_thread(Pool.ARCHIVE, pack.expand, packed, plain, MOST_BYTES)
            history = await in_thread(Pool.ARCHIVE, history_file.read, plain)
            if history.machine.id != machine_id:
                raise ArchiveDamaged(f"it is the history of {history.machine.id}")
            return history
        except ArchiveDamaged as error:
            raise ArchiveDamaged(f"the archived history {self.name}/{key} cannot be read: {error}") from error

    @asynccontextmanager
    async def _room(self) -> AsyncIterator[Path]:
        """A directory for one reading."""
        room = self._directory / f"read-{next(self._numbers)}"
        async with self._on_disk():
            await in_thread(Pool.ARCHIVE, _make_anew, room)
            try:
                yield room
            finally:
                rmtree(room, ignore_errors=True)

    @asynccontextmanager
    async def _on_disk(self) -> AsyncIterator[None]:
        try:
            yield
        except OSError as error:
            raise of_os(str(self._directory), error) from error

    def _staged(self, machine_id: MachineId) -> Path:
        return self._directory / Path(key_of(machine_id)).name

    def _write(self, machine_id: MachineId, history: History) -> int:
        staged = self._staged(machine_id)
        plain, draft = staged.with_name(f"{machine_id}.sqlite"), staged.with_name(f"{staged.name}.partial")
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            history_file.write(history, plain)
            if plain.stat().st_size > MOST_BYTES:
                raise ArchiveDamaged(f"the history of {machine_id} is too long to be read again")
            size = pack.compress(plain, draft)
            draft.replace(staged)
            inside("packed")
            return size
        finally:
            plain.unlink(missing_ok=True)
            draft.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _make_anew(path: Path) -> None:
    """What a daemon that died in the middle of reading has left there goes."""
    rmtree(path, ignore_errors=True)
    path.mkdir(parents=True, mode=0o700)

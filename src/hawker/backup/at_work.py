"""Who is at work in a repository of backups: backups, prunes and verifications say so in objects of their own.

Invariant: each says so before it looks whether another does. So of a backup and a prune that begin at the same moment
at least one finds the other, whatever is between them. What somebody said counts until the moment that it named, and
whoever works stops before others may count it out.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec

from hawker.archive.failure import ArchiveDamaged
from hawker.backup import format as objects
from hawker.backup.checks import CLOCKS_S
from hawker.backup.format import AtWork, RepositoryKeys
from hawker.backup.place import BackupPlace
from hawker.clock import Clock
from hawker.errors import HawkerError, Unavailable

_RUNNING, _PRUNES, _SURVEYING, _VERIFYING = "running/", "prunes/", "surveying", "verifying"
_PRUNING = "pruning"
"""The mark that older versions look at. One that was left by a killed prune is removed by the next, and of two that do
so at once the second removes the first one's. What is in `prunes/` nobody else removes while it counts."""

BACKUP_LEASE_S = 3600.0
"""The seconds for which a backup counts as under way from when it last said so: a backup that was killed holds up
prunes no longer."""

LONGEST_PRUNE_S = 3600.0
_SAID_AGAIN_S = 600.0
_REMOVED_S = 10.0
_WRITERS_LOOK_S = 5.0
_LEFT_S = 86_400.0
_MOST_LISTED = 100_000


class BackupsAtWork:
    """`keys` gives the repository's keys; with `make`, an empty place becomes a repository."""

    def __init__(self, place: BackupPlace, keys: Callable[..., Awaitable[RepositoryKeys]], clock: Clock) -> None:
        self._place = place
        self._keys = keys
        self._clock = clock

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """A context for a backup. What is here stays meanwhile, as long as what is given is called again and again: it
        says that the work goes on, and raises `Unavailable` once that was not said for so long that something may have
        gone. Raises `Unavailable` while the repository is pruned."""
        token = self._clock.token_bytes(8).hex()
        async with self._at_work(f"{_RUNNING}{token}", token, BACKUP_LEASE_S) as lease:
            if await self._is_said(_PRUNING) or await self._is_said_below(_PRUNES):
                raise Unavailable(
                    f"the backups in {self._place.name} are being pruned: this one begins when that has ended"
                )
            yield lease.keep_on

    @asynccontextmanager
    async def surveying(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """A context for a prune that reads what the backups have. Nobody else does meanwhile, as long as what is given
        is called again and again. It bars no backup: `taken` does. Raises `Unavailable` while somebody does."""
        async with self._alone(_SURVEYING, f"the backups in {self._place.name} are being pruned already") as keep_on:
            yield keep_on

    @asynccontextmanager
    async def taken(self, patience_s: float = 0.0) -> AsyncIterator["WorkLease"]:
        """A context for a prune. Nobody writes meanwhile, and nobody else prunes. The `check` of what is given raises
        `Unavailable` once that is not certain any more. No backup begins while one that is under way is waited for;
        raises `Unavailable` after that long."""
        said = await self._place.get(_PRUNING, objects.MOST_AT_WORK_BYTES)
        other = await self._at_work_in(_PRUNING, said)
        if other is not None and other.until + CLOCKS_S > self._clock.now():
            raise Unavailable(f"the backups in {self._place.name} are being pruned already")
        token = self._clock.token_bytes(8).hex()
        late = f"another prune of {self._place.name} began at the same moment: repeat the command"
        async with self._at_work(f"{_PRUNES}{token}", token, LONGEST_PRUNE_S) as lease:
            if await self._is_said_below(_PRUNES, but=token):
                raise Unavailable(late)
            if said is not None:
                await self._place.backend.remove(_PRUNING)  # of one that was killed
            async with self._at_work(_PRUNING, token, LONGEST_PRUNE_S):
                mine = await self._read_at_work(_PRUNING)
                if mine is None or mine.token != token:
                    raise Unavailable(late)
                deadline = self._clock.monotonic() + patience_s
                while await self._is_said_below(_RUNNING):
                    if self._clock.monotonic() >= deadline:
                        raise Unavailable(f"a backup to {self._place.name} is under way: prune when it has ended")
                    await self._clock.sleep(_WRITERS_LOOK_S)
                yield lease

    @asynccontextmanager
    async def verifying(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """A context for a verification. Nobody else verifies the packs of this day, as long as what is given is called
        again and again. It bars no backup and no prune. Raises `Unavailable` while somebody does."""
        refusal = f"the backups in {self._place.name} are being verified by another node"
        async with self._alone(_VERIFYING, refusal) as keep_on:
            yield keep_on

    @asynccontextmanager
    async def _alone(self, key: str, refusal: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Two that begin at the same moment both go on: it saves work, and nothing else."""
        if await self._is_said(key):
            raise Unavailable(refusal)
        async with self._at_work(key, self._clock.token_bytes(8).hex(), BACKUP_LEASE_S) as lease:
            yield lease.keep_on

    async def _is_said(self, key: str) -> bool:
        found = await self._read_at_work(key)
        return found is not None and found.until + CLOCKS_S > self._clock.now()

    async def _is_said_below(self, prefix: str, but: str = "") -> bool:
        """Removes what somebody who was killed has left there, once it has counted for nothing for a day."""
        for key in await self._place.backend.names(prefix, _MOST_LISTED):
            found = None if key == f"{prefix}{but}" else await self._read_at_work(key)
            if found is not None and found.until + CLOCKS_S > self._clock.now():
                return True
            if found is not None and found.until + _LEFT_S < self._clock.now():
                await self._place.backend.remove(key)
        return False

    @asynccontextmanager
    async def _at_work(self, key: str, token: str, longest_s: float) -> AsyncIterator["WorkLease"]:
        """Of two that prune at the same moment the mark is the first one's, and only its own is removed."""
        keys = await self._keys(make=True)

        async def say(until: float) -> None:
            sealed = keys.seal(key, msgspec.msgpack.encode(AtWork(token=token, until=until)))
            await (self._place.put_new(key, sealed) if key == _PRUNING else self._place.put(key, sealed))

        lease = WorkLease(self._clock, longest_s, say)
        await lease.begin()
        try:
            yield lease
        finally:
            with anyio.move_on_after(_REMOVED_S, shield=True), suppress(HawkerError):
                there = None if key.endswith(token) else await self._read_at_work(key)
                if key.endswith(token) or (there is not None and there.token == token):
                    await self._place.backend.remove(key)

    async def _read_at_work(self, key: str) -> AtWork | None:
        """One that cannot be read counts for nothing: whoever can write to the place can remove it as well."""
        return await self._at_work_in(key, await self._place.get(key, objects.MOST_AT_WORK_BYTES))

    async def _at_work_in(self, key: str, sealed: bytes | None) -> AtWork | None:
        if sealed is None:
            return None
        try:
            return objects.decoded((await self._keys()).open(key, sealed), AtWork)
        except ArchiveDamaged:
            return None


class WorkLease:
    """For `longest_s` from when `say` said last that somebody is at work; the clocks of others may differ."""

    def __init__(self, clock: Clock, longest_s: float, say: Callable[[float], Awaitable[None]]) -> None:
        self._clock = clock
        self._longest_s = longest_s
        self._say = say
        self._said_at = self._until = 0.0  # monotonic, Unix seconds
        self._saying = anyio.Lock()

    async def begin(self) -> None:
        said_at, until = self._clock.monotonic(), self._clock.now() + self._longest_s
        await self._say(until)
        self._said_at, self._until = said_at, until

    def lasted_s(self) -> float:
        """The seconds since it was said."""
        return self._clock.monotonic() - self._said_at

    def check(self) -> None:
        """Checks by both clocks that the work was said to go on in time: one stands still while the host sleeps, and
        one may be set."""
        late_s = max(self.lasted_s(), self._clock.now() - self._until + self._longest_s)
        if late_s > self._longest_s - CLOCKS_S:
            raise Unavailable(f"it took longer than {self._longest_s / 3600:g} h: repeat it, it goes on from there")

    async def keep_on(self) -> None:
        async with self._saying:
            self.check()
            if self.lasted_s() < _SAID_AGAIN_S:
                return
            said_at, until = self._clock.monotonic(), self._clock.now() + self._longest_s
            await self._say(until)
            self.check()  # it was said before others stopped counting on it
            self._said_at, self._until = said_at, until

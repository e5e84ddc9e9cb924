"""Backups of a real host's volumes: a snapshot's file goes to the repository, a new volume's file comes from it."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from hawker.archive.failure import ArchiveDamaged
from hawker.backup.checks import BackupCheck, BackupShareReport
from hawker.backup.format import FORMAT, BackupManifest
from hawker.backup.prune import prune
from hawker.backup.repository import BackupRepository
from hawker.backup.transfer import restore, save
from hawker.backup.verification import verify_share
from hawker.clock import Clock
from hawker.errors import Fault, NotFound
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host.sparse import publish
from hawker.ids import VolumeId
from hawker.record.volume import Fstype, SnapshotRecord
from hawker.time_window import DAY_S
from hawker.volume.disks import BackupFound, BackupSize, damaged_at
from hawker.volume.encryption import VolumeKeys

PRUNE_PATIENCE_S = 600.0
VERIFIED_BYTES_PER_S = 8 << 20
"""What a node reads of the repository at most to verify it: it has the whole day."""


class HostBackups:
    """Keeps `disks.Backups`. `file_of` is where a volume's blocks are; `snapshots` has the files of snapshots."""

    def __init__(
        self,
        repository: BackupRepository,
        snapshots: Path,
        file_of: Callable[[VolumeId], Path],
        keys: VolumeKeys,
        clock: Clock,
    ) -> None:
        self._repository = repository
        self._snapshots = snapshots
        self._file_of = file_of
        self._keys = keys
        self._clock = clock

    async def save(self, backup: str, snapshot: SnapshotRecord, name: str) -> BackupSize:
        file = self._snapshots / snapshot.id
        if not await in_thread(Pool.DISKS, file.exists):
            raise NotFound(f"the file of snapshot {snapshot.id} is not there")
        await self._repository.keys(make=True)
        below, _, _ = backup.rpartition("/")
        earlier = [each for each in await self._repository.backups(f"{below}/") if each < backup]
        about, last = self._about(backup, snapshot, name), await self._last(earlier)
        doubted = await self._is_doubted(earlier)
        with damaged_at(f"volume {snapshot.volume}"):
            made = await save(self._repository, file, backup, about, last, doubted=doubted)
        return BackupSize(stored_bytes=made.stored_bytes, sent_bytes=made.sent_bytes)

    async def _last(self, earlier: list[str]) -> BackupManifest | None:
        """What is damaged is no reason to make no further backup: what it has is sent anew, where it is not there."""
        try:
            return await self._repository.manifest(earlier[-1]) if earlier else None
        except (ArchiveDamaged, NotFound):
            return None

    async def _is_doubted(self, earlier: list[str]) -> bool:
        """Whether the newest backup is known to be damaged: then what it shares with this one is read before it is
        believed, and once this one is there the next has nothing to doubt."""
        known = (await self._repository.checks()).backups if earlier else {}
        return bool(earlier) and earlier[-1] in known and known[earlier[-1]].found is not None

    def _about(self, backup: str, snapshot: SnapshotRecord, name: str) -> BackupManifest:
        org, app, volume, _ = backup.split("/")
        return BackupManifest(
            format=FORMAT,
            volume=volume,
            name=name,
            app=app,
            org=org,
            size_bytes=0,
            fstype=snapshot.fstype.value,
            encrypted=snapshot.encrypted,
            volume_key=None if snapshot.key is None else self._keys.open(snapshot.key),
            guest_written=snapshot.guest_written,
            created_at=snapshot.created_at,
            segments=b"",
            stored_bytes=0,
            sent_bytes=0,
        )

    async def find(self, backup: str) -> BackupFound:
        manifest = await self._repository.manifest(backup)
        if manifest.encrypted and manifest.volume_key is None:
            raise Fault(f"backup {backup} is of an encrypted volume and does not have its key")
        return BackupFound(
            size_bytes=manifest.size_bytes,
            fstype=Fstype(manifest.fstype),
            encrypted=manifest.encrypted,
            key=None
            if manifest.volume_key is None
            else self._keys.seal(VolumeId(manifest.volume), manifest.volume_key),
            guest_written=manifest.guest_written,
        )

    async def restore(self, backup: str, volume_id: VolumeId) -> None:
        target = self._file_of(volume_id)
        draft = target.with_name(f"{target.name}.draft")
        if await in_thread(Pool.DISKS, target.exists):
            return
        await in_thread(Pool.DISKS, lambda: target.parent.mkdir(parents=True, exist_ok=True, mode=0o700))
        try:
            await restore(self._repository, await self._repository.manifest(backup), draft)
            inside("drafted")
            await publish(draft, target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    async def list(self, prefix: str) -> list[str]:
        return await self._repository.backups(prefix)

    async def prune(self, daily: int, weekly: int) -> int:
        now = self._clock.now()
        if not await self._repository.backups("") or (await self._repository.marks()).at > now - DAY_S:
            return 0
        report = await prune(self._repository, now, daily=daily, weekly=weekly, patience_s=PRUNE_PATIENCE_S)
        return len(report.backups)

    async def verify(self, percent: float, rest: Callable[[], Awaitable[None]]) -> BackupShareReport | None:
        if not await self._repository.backups(""):
            return None

        async def pace(read_bytes: int) -> None:
            await self._clock.sleep(read_bytes / VERIFIED_BYTES_PER_S)
            await rest()

        return await verify_share(self._repository, self._clock.now(), percent, pace)

    async def checks(self, prefix: str) -> Mapping[str, BackupCheck]:
        found = (await self._repository.checks()).backups
        return {name: check for name, check in found.items() if name.startswith(prefix)}

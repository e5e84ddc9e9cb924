"""Backups of a real host's volumes: a snapshot's file goes to the repository, a new volume's file comes from it."""

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from hawker.archive.failure import ArchiveDamaged
from hawker.backup.checks import BackupCheck, BackupShareReport
from hawker.backup.format import FORMAT, BackupManifest
from hawker.backup.prune import prune
from hawker.backup.repository import MOST_STORED, BackupRepository
from hawker.backup.transfer import restore, save
from hawker.backup.verification import verify_share
from hawker.clock import Clock
from hawker.errors import Fault, NotFound
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host.extents import tells_places
from hawker.host.sparse import allocated_bytes, draft, draft_file, publish, shares_blocks
from hawker.ids import VolumeId
from hawker.log import bind
from hawker.record.volume import Fstype, SnapshotRecord
from hawker.time_window import DAY_S
from hawker.volume.disks import BackupFound, BackupSize, damaged_at
from hawker.volume.encryption import VolumeKeys
from hawker.volume.host_copies import BASE, remove_bases

_log = bind("hawker.backups")
PRUNE_PATIENCE_S = 600.0
VERIFIED_BYTES_PER_S = 8 << 20
"""The most bytes a second that a node reads of the repository to verify it: it has the whole day."""


class HostBackups:
    """Keeps `disks.Backups`. `file_of` is where a volume's blocks are; `snapshots` has the files of snapshots.

    Where files share blocks, the snapshot of a volume's last backup stays beside the volume's file: the next backup
    reads only where its own differs. Its name is that of the content which the backup lists, so it serves no other. It
    goes with the volume's directory. The node keeps `floor_bytes` of the disk free."""

    def __init__(
        self,
        repository: BackupRepository,
        snapshots: Path,
        file_of: Callable[[VolumeId], Path],
        keys: VolumeKeys,
        clock: Clock,
        floor_bytes: int = 0,
    ) -> None:
        self._repository = repository
        self._snapshots = snapshots
        self._file_of = file_of
        self._keys = keys
        self._clock = clock
        self._floor_bytes = floor_bytes
        self._shares: bool | None = None

    async def save(self, backup: str, snapshot: SnapshotRecord, name: str) -> BackupSize:
        file = self._snapshots / snapshot.id
        if not await in_thread(Pool.DISKS, file.exists):
            raise NotFound(f"the file of snapshot {snapshot.id} is not there")
        await self._repository.keys(make=True)
        below, _, _ = backup.rpartition("/")
        earlier = [each for each in await self._repository.backups(f"{below}/") if each < backup]
        about, last = self._about(backup, snapshot, name), await self._last(earlier)
        doubted = await self._is_doubted(earlier)
        base = None if last is None else await self._base(snapshot.volume, last)
        with damaged_at(f"volume {snapshot.volume}"):
            made = await save(self._repository, file, backup, about, last, doubted=doubted, base=base)
        await self._keep_base(file, await self._base_file(snapshot.volume, made))
        return BackupSize(stored_bytes=made.stored_bytes, sent_bytes=made.sent_bytes)

    async def _base(self, volume_id: VolumeId, last: BackupManifest) -> Path | None:
        file = await self._base_file(volume_id, last)
        return file if await in_thread(Pool.DISKS, file.exists) else None

    async def _base_file(self, volume_id: VolumeId, manifest: BackupManifest) -> Path:
        content = (await self._repository.keys()).content_name(manifest)
        return self._file_of(volume_id).with_name(f"{BASE}{content.hex()}")

    async def _keep_base(self, snapshot: Path, base: Path) -> None:
        """What cannot be kept costs the next backup a whole read, and nothing else. A volume that is written anew needs
        as much beside it."""
        try:
            await in_thread(Pool.DISKS, remove_bases, base.parent.parent, base.parent.name)
            if await in_thread(Pool.DISKS, self._may_keep, snapshot):
                await draft(snapshot, draft_file(base))
                await publish(draft_file(base), base)
        except OSError as error:
            _log.warning("nothing is kept to compare the next backup with", extra={"error": str(error)})

    def _may_keep(self, snapshot: Path) -> bool:
        if self._shares is None:
            self._shares = shares_blocks(self._snapshots) and tells_places(snapshot)
        disk = os.statvfs(self._snapshots)
        return self._shares and disk.f_bavail * disk.f_frsize >= allocated_bytes(snapshot) + self._floor_bytes

    async def _last(self, earlier: list[str]) -> BackupManifest | None:
        """What is damaged is no reason to make no further backup: what it has is sent anew, where it is not there."""
        try:
            return await self._repository.manifest(earlier[-1]) if earlier else None
        except (ArchiveDamaged, NotFound):
            return None

    async def _is_doubted(self, earlier: list[str]) -> bool:
        """Whether the newest backup is known to be damaged: then what it shares with this one is read before it is
        believed, and once this one is there the next has nothing to doubt."""
        known = await self._repository.checks_below(earlier[-1]) if earlier else {}
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
        drafted = draft_file(target)
        if await in_thread(Pool.DISKS, target.exists):
            return
        await in_thread(Pool.DISKS, lambda: target.parent.mkdir(parents=True, exist_ok=True, mode=0o700))
        try:
            await restore(self._repository, await self._repository.manifest(backup), drafted)
            inside("drafted")
            await publish(drafted, target)
        except BaseException:
            drafted.unlink(missing_ok=True)
            raise

    async def list(self, prefix: str) -> list[str]:
        return await self._repository.backups(prefix)

    async def prune(self, daily: int, weekly: int) -> int:
        now = self._clock.now()
        if not await self._repository.backups("", MOST_STORED) or (await self._repository.marks()).at > now - DAY_S:
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
        return await self._repository.checks_below(prefix)

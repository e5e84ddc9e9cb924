"""What apps have on this node, counted from the records in the reader's own moment, so it cannot be stale. Only asked
where there is a quota: it reads each machine and volume of the app.
"""

from collections.abc import Callable, Iterable

from hawker.config import MachineConfig
from hawker.config.effective import guest, temp_dirs
from hawker.ids import AppName
from hawker.record.app import APPS, IPS
from hawker.record.machine import BY_APP, MACHINES, MachineRecord
from hawker.record.quota import Amount
from hawker.record.volume import MIB_PER_GB, SNAPSHOTS, VOLUMES, VOLUMES_BY_APP
from hawker.store.contract import Reader

_MIB = 1 << 20


def no_files(app_id: str) -> int:
    return 0


class UsageCount:
    """`machine_disk_mib` is what admission counts for a root filesystem, `logs_mib` what a machine keeps of output;
    `files_bytes` says how much was uploaded for an app's machines, by the app's id."""

    def __init__(self, machine_disk_mib: int, logs_mib: int, files_bytes: Callable[[str], int] = no_files) -> None:
        self._files_bytes = files_bytes
        self._machine_disk_mib = machine_disk_mib
        self._logs_mib = logs_mib

    def of_app(self, reader: Reader, app: AppName) -> Amount:
        return self._of_apps(reader, frozenset({app}))

    def of_org(self, reader: Reader, org: str) -> Amount:
        return self._of_apps(reader, frozenset(record.name for _, record in reader.scan(APPS) if record.org == org))

    def of_machine(self, config: MachineConfig) -> Amount:
        """Without its image, of which its app may have it already."""
        size = guest(config)
        disk_mib = self._machine_disk_mib + self._logs_mib
        disk_mib += sum(each.size_mib for each in temp_dirs(config) if each.storage == "disk")
        return Amount(machines=1, cpus=size.cpus, memory_mb=size.memory_mb, disk_mb=disk_mib)

    def of_volume(self, size_gb: int) -> Amount:
        return Amount(volumes=1, disk_mb=size_gb * MIB_PER_GB)

    def _of_apps(self, reader: Reader, apps: frozenset[AppName]) -> Amount:
        machines = [record for app in sorted(apps) for record in _machines(reader, app)]
        total = Amount(disk_mb=_images_mib(machines))
        for record in machines:
            total = total.plus(self.of_machine(record.config))
        for app in sorted(apps):
            for _, key in reader.scan(VOLUMES_BY_APP, f"{app}/"):
                volume = reader.get(VOLUMES, key.id)
                total = total.plus(Amount() if volume is None else self.of_volume(volume.size_gb))
            known = reader.get(APPS, app)
            uploaded = 0 if known is None else self._files_bytes(known.id)
            total = total.plus(Amount(addresses=reader.count(IPS, f"{app}/"), disk_mb=-(-uploaded // _MIB)))
        for _, snapshot in reader.scan(SNAPSHOTS):
            if snapshot.app in apps:
                total = total.plus(Amount(snapshots=1, disk_mb=-(-snapshot.size // _MIB)))
        return total


def _machines(reader: Reader, app: AppName) -> Iterable[MachineRecord]:
    for _, key in reader.scan(BY_APP, f"{app}/"):
        record = reader.get(MACHINES, key.id)
        if record is not None:
            yield record


def _images_mib(machines: Iterable[MachineRecord]) -> int:
    """Each image once, as it was pulled."""
    sizes = {
        image.digest: image.size_bytes
        for record in machines
        for image in (record.image, *record.container_images.values())
    }
    return -(-sum(sizes.values()) // _MIB)

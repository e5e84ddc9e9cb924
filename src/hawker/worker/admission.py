"""Whether the node has room for a machine, and which of its devices are the machine's from now on. Asked inside the
transaction that takes what is granted.
"""

from collections.abc import Callable
from ipaddress import IPv4Network

import msgspec

from hawker.config import MachineConfig
from hawker.errors import Conflict, HawkerError, NoRoom, NoRoomAtVolume
from hawker.gpu import Gpu
from hawker.ids import MachineId
from hawker.node import Capacity, Resources, shortfall, shortfall_text
from hawker.quota.quotas import Quotas
from hawker.record.machine import BY_IPV4, MACHINES, MachineRecord, claim
from hawker.runtime.driver import Driver
from hawker.settings import Settings
from hawker.store.contract import Reader, Tx
from hawker.value_object import ValueObject
from hawker.volume.attachment import volume_id_of
from hawker.worker.capacity import room_for
from hawker.worker.table import MachineTable

_NAMES = {"cpus": "CPUs", "memory_mb": "memory", "disk_mb": "disk"}
_GPUS = "GPUs"


class Granted(ValueObject, frozen=True):
    """The part of the node that a machine holds from now on; `gpus` are those beside the ones that it holds already."""

    holds: Resources
    gpus: tuple[Gpu, ...]


class Admission:
    """`room` answers what the node has."""

    def __init__(
        self, table: MachineTable, driver: Driver, settings: Settings, room: Callable[[], Capacity], quotas: Quotas
    ) -> None:
        self._table = table
        self._driver = driver
        self._settings = settings
        self._room = room
        self._quotas = quotas

    def allow(self, tx: Tx, record: MachineRecord, config: MachineConfig) -> None:
        """Whether the machine may have this config in the place of its own. Raises `QuotaExceeded`."""
        count = self._quotas.count
        self._quotas.check(tx, record.app, count.of_machine(config).minus(count.of_machine(record.config)))

    def place(self, tx: Tx, record: MachineRecord) -> MachineRecord:
        """A new machine with its devices; one that is not to be launched has none. Raises `NoRoom`, and
        `QuotaExceeded` when its app or org has too much."""
        self._quotas.check(tx, record.app, self._quotas.count.of_machine(record.config))
        if tx.count(MACHINES) >= self._settings.max_machines:
            raise NoRoom(
                f"could not find a candidate host: the node has {self._settings.max_machines} machines, stopped ones"
                " too, which is the most (max_machines)",
                scope="host",
                shortfall={"machines": 1},
            )
        room = self._room()
        missing = shortfall(room, self._table.used(tx), record.holds)
        gpus = claim(tx, room.gpus, record.config, record) if record.holds.memory_mib else ()
        if isinstance(gpus, dict):
            missing |= gpus
        if missing or isinstance(gpus, dict):
            raise _no_room(missing, record)
        return msgspec.structs.replace(record, gpus=gpus)

    def admit(self, tx: Reader, record: MachineRecord, config: MachineConfig) -> Granted:
        """The resources that the machine will hold; what it holds already counts as free. Raises `Conflict` when the
        host is full."""
        asked, room = room_for(self._settings, self._driver.features.overhead_mib, config), self._room()
        missing = shortfall(room, self._table.used(tx).minus(record.holds), asked)
        gpus = claim(tx, room.gpus, config, record)
        if missing or isinstance(gpus, dict):
            what = _NAMES[next(iter(missing))] if missing else _GPUS
            raise Conflict(
                f"could not reserve resource for machine: insufficient {what} available to fulfill request on the "
                "current host"
            )
        return Granted(asked, gpus)


def _no_room(missing: dict[str, int], record: MachineRecord) -> HawkerError:
    volume_id, region = volume_id_of(record.config), record.region
    if volume_id is not None:
        return NoRoomAtVolume(f"insufficient resources to create new machine with existing volume id '{volume_id}'")
    return NoRoom(
        f"could not find a candidate host: no host in region '{region}' has room, short of {shortfall_text(missing)}",
        scope="region",
        shortfall=missing,
    )


# The node's pool of IPv4 addresses, which machines use for traffic outwards only.

_RESERVED = 2  # the network's own address and its first host


def free_ipv4(reader: Reader, pool: IPv4Network, machine_id: MachineId) -> str:
    """A free address, searched from a place that the machine's id gives, so that it is found at once in a pool that is
    not nearly full. Raises `Conflict` when it is."""
    size = pool.num_addresses - _RESERVED - 1
    if reader.count(BY_IPV4) >= size:
        raise Conflict("insufficient IPs available to fulfill request")
    first = int(machine_id, 16) % size
    for step in range(size):
        address = str(pool[_RESERVED + (first + step) % size])
        if reader.get(BY_IPV4, address) is None:
            return address
    raise AssertionError("a pool with a free address has one")

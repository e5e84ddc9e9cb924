"""Which user and group ids of the host each machine has for its own: a range of `IDS_EACH`, given with its record and
taken back with it. No two machines of a node share one, so the kernel counts each machine's use by itself.
"""

import msgspec

from hawker.errors import Conflict
from hawker.host_ids import IDS_EACH, id_bounds, service_users
from hawker.ids import MachineId
from hawker.record.machine import BY_FIRST_ID, MachineRecord, id_key
from hawker.runtime.driver import Features
from hawker.settings import Settings
from hawker.store.contract import Reader
from hawker.value_object import ValueObject


class IdPool(ValueObject, frozen=True):
    """The ranges of a node: `count` of them, from the host's id `first` on."""

    first: int
    count: int

    def free(self, reader: Reader, machine_id: MachineId) -> int:
        """The first id of a free range, searched from a place that the machine's id gives, as `free_ipv4` does. Raises
        `Conflict` when there is none."""
        start = int(machine_id, 16) % self.count
        for step in range(self.count):
            first = self.first + (start + step) % self.count * IDS_EACH
            if reader.get(BY_FIRST_ID, id_key(first)) is None:
                return first
        raise Conflict("no user ids are left for another machine of this node: give it more with --userns-ids")


def id_pool(settings: Settings, features: Features) -> IdPool | None:
    """The pool of ids for machines; None where machines have no ids of their own."""
    if not features.user_namespace:
        return None
    first, _ = id_bounds(settings.userns_ids)
    return IdPool(first, max(1, (min(service_users(settings.userns_ids)) - first) // IDS_EACH))


def with_ids(reader: Reader, pool: IdPool | None, record: MachineRecord) -> MachineRecord:
    """The machine with a range, unless it has one or there are none. Raises `Conflict`."""
    if pool is None or record.first_id is not None:
        return record
    return msgspec.structs.replace(record, first_id=pool.free(reader, record.id))

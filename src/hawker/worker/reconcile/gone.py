"""What is kept of destroyed machines: which are remembered, what they take, and which are forgotten.

Their records have whole configs, and no quota counts them. So each is read once in a daemon's life and by its head
alone, in pieces between which others run; it never changes again. The choice of what is forgotten is pure.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set

import msgspec
from anyio.lowlevel import checkpoint

from hawker.ids import AppName, MachineId, OrderId
from hawker.record.machine import DESTROYED, EVENTS, VERSIONS
from hawker.store.contract import Bucket, Reader
from hawker.value_object import ValueObject

KEPT_OF_APP, KEPT_BYTES_OF_APP = 5_000, 64 << 20  # destroyed machines of one app, and what they take in the store
UNCONFIRMED = 10
"""So many times as much is kept of an app where the archive has not confirmed it yet."""

_KEYS_AT_ONCE = 500
_READ_AT_ONCE = 16  # records, each up to a MiB


class GoneHead(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of the record of a destroyed machine."""

    app: AppName
    order: OrderId | None = None
    updated_at: float  # Unix seconds of its end


class GoneMachine(ValueObject, frozen=True):
    """A destroyed machine that is remembered."""

    head: GoneHead
    size_bytes: int
    """The bytes that its record, versions and events take in the store."""


_HEADS = Bucket(DESTROYED.name, GoneHead)


def heads(reader: Reader) -> Iterator[tuple[MachineId, GoneHead]]:
    """Of all, in the order of their ids. For a transaction, which cannot let others run."""
    after: str | None = None
    while page := list(reader.scan(_HEADS, after=after, limit=_READ_AT_ONCE)):
        yield from ((MachineId(key), head) for key, head in page)
        after = page[-1][0]


class GoneMachines:
    """What the daemon has read of them."""

    def __init__(self) -> None:
        self._known: Mapping[MachineId, GoneMachine] = {}

    async def read(self, reader: Reader) -> Mapping[MachineId, GoneMachine]:
        """All that `reader` has, by id. Lets others run in between."""
        found: dict[MachineId, GoneMachine] = {}
        after: str | None = None
        fresh = 0
        while page := reader.sizes(DESTROYED, after=after, limit=_KEYS_AT_ONCE):
            for key, size_bytes in page:
                machine_id = MachineId(key)
                gone = self._known.get(machine_id)
                if gone is None:
                    gone, fresh = _read(reader, machine_id, size_bytes), fresh + 1
                    if fresh % _READ_AT_ONCE == 0:
                        await checkpoint()
                if gone is not None:  # forgotten meanwhile, where the reader is no snapshot
                    found[machine_id] = gone
            after = page[-1][0]
            if len(page) == _KEYS_AT_ONCE:
                await checkpoint()
        self._known = found
        return found


def _read(reader: Reader, machine_id: MachineId, size_bytes: int) -> GoneMachine | None:
    head = reader.get(_HEADS, machine_id)
    if head is None:
        return None
    for bucket in (VERSIONS, EVENTS):
        size_bytes += sum(size for _, size in reader.sizes(bucket, f"{machine_id}/"))
    return GoneMachine(head, size_bytes)


def outlived(
    gone: Mapping[MachineId, GoneMachine],
    apps: Set[AppName],
    oldest: float,
    is_confirmed: Callable[[MachineId], bool],
) -> Iterator[MachineId]:
    """Those to forget, the oldest first: destroyed before `oldest`, or beyond what is kept of an app. Those of removed
    apps, which are not in `apps`, count as one app's. What is not confirmed waits, within bounds."""
    counts, sizes = Counter[str](), Counter[str]()
    forgotten: list[MachineId] = []
    for machine_id, each in sorted(gone.items(), key=lambda item: (item[1].head.updated_at, item[0]), reverse=True):
        app = each.head.app if each.head.app in apps else ""
        counts[app], sizes[app] = counts[app] + 1, sizes[app] + each.size_bytes
        beyond = max(counts[app] / KEPT_OF_APP, sizes[app] / KEPT_BYTES_OF_APP)
        due = beyond > 1 or each.head.updated_at < oldest
        if due and (beyond > UNCONFIRMED or is_confirmed(machine_id)):
            forgotten.append(machine_id)
    return reversed(forgotten)

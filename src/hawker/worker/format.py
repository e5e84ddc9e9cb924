"""The format of a node's data directory: one number for all that outlives a daemon, asked before anything else is read.

It covers the store's records, the runs and their inputs, the image shelf, machines' run directories and the names that
a node gives things on its host. docs/upgrade.md says when it changes.
Invariant: a daemon that would misread what is there does not start; it says which hawker wrote it and what to do.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from hawker.errors import CannotStart
from hawker.fsm import journal
from hawker.record.app import APPS
from hawker.record.machine import MACHINES
from hawker.record.node import FORMATS, NODE, USED, Format
from hawker.store.contract import Bucket, Reader, Store, Tx
from hawker.value_object import ValueObject
from hawker.version import VERSION

BEFORE_FORMATS = Format(number=0, hawker="0.1.0", needs=0, needs_hawker="0.1.0")


class Upgrade(ValueObject, frozen=True):
    """Brings what is stored from format `to` - 1 to `to`. It meets records that are upgraded already, wherever an older
    hawker wrote between two newer ones, and leaves them as they are."""

    to: int
    apply: Callable[[Tx], None]


class Edition(ValueObject, frozen=True):
    """The formats that one version of Hawker writes and reads. A reader of format `needs` can read what it writes;
    `reads` is the oldest format that it can bring up to its own."""

    hawker: str
    """The version of Hawker, for messages."""
    format: int
    """The number of the format that it writes, 0 or more."""
    needs: int
    reads: int
    upgrades: tuple[Upgrade, ...] = ()

    def __post_init__(self) -> None:
        assert self.reads <= self.needs <= self.format
        assert [upgrade.to for upgrade in self.upgrades] == sorted({upgrade.to for upgrade in self.upgrades})


THIS = Edition(hawker=VERSION, format=1, needs=0, reads=0)


def judge(found: Format, mine: Edition) -> Format:
    """The format of the directory once `mine` writes there. Raises `CannotStart` when it must not."""
    if found.needs > mine.format:
        raise CannotStart(
            f"the data directory was written by hawker {found.needs_hawker}, whose format {found.needs} this hawker"
            f" {mine.hawker} does not know (it knows {mine.format}): upgrade hawker, or restore a backup made before"
        )
    if found.number < mine.reads:
        raise CannotStart(
            f"the data directory was written by hawker {found.hawker} in format {found.number}, and this hawker"
            f" {mine.hawker} reads formats from {mine.reads} on: upgrade by way of a version between the two"
        )
    asks_more = mine.needs > found.needs
    return Format(
        number=mine.format,
        hawker=mine.hawker,
        needs=mine.needs if asks_more else found.needs,
        needs_hawker=mine.hawker if asks_more else found.needs_hawker,
    )


async def enter(store: Store, mine: Edition = THIS) -> None:
    """Checks, before anything else is read, that this version may be here and can read what a boot reads. Upgrades what
    is older. Raises `CannotStart`, and `Fault` naming a record that is damaged."""
    found = store.get(FORMATS, "self") or BEFORE_FORMATS
    after = judge(found, mine)
    if after != found:
        await store.write(partial(_upgrade, found=found, after=after, mine=mine))
    _read_all(store)


def _upgrade(tx: Tx, found: Format, after: Format, mine: Edition) -> None:
    for upgrade in mine.upgrades:
        if upgrade.to > found.number:
            upgrade.apply(tx)
    tx.put(FORMATS, "self", after)


def _read_all(reader: Reader) -> None:
    """Of a machine whose record is passed over, everything on the host would count as stray and be removed: so a
    damaged one is found now. Of the history that runs leave, a boot needs only the newest id."""
    buckets: tuple[Bucket[Any], ...] = (NODE, APPS, MACHINES, USED, journal.OPEN, journal.LINES)
    for bucket in buckets:
        for _ in reader.scan(bucket):
            pass
    journal.newest_id(reader)

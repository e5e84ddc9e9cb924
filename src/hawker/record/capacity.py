"""What machines and volumes hold of their node: `USED` is the sum, changed in the transaction that changes a record, so
that admission is one look and cannot be stale.
"""

from hawker.node import Resources
from hawker.store.contract import Bucket, Reader, Tx


def used(reader: Reader) -> Resources:
    return reader.get(USED, "all") or Resources()


def hold(tx: Tx, before: Resources, after: Resources) -> None:
    """What somebody held is now `after`."""
    if before != after:
        tx.put(USED, "all", used(tx).minus(before).plus(after))


USED = Bucket("used", Resources)  # the one key "all": the sum of what the machines hold

"""Bugs that can be planted in replication, to show that the fuzz finds them. Nothing but the fuzz plants any."""

from enum import StrEnum


class Bug(StrEnum):
    """Each is one line of care left out."""

    SKIP_AHEAD = "skip-ahead"  # what comes too early is applied, and the hole forgotten
    NO_ANTI_ENTROPY = "no-anti-entropy"  # nobody compares vectors
    NO_EPOCH_BUMP = "no-epoch-bump"  # a peer knows more about this node, and it goes on
    NO_LEASE = "no-lease"  # a file that proves nothing is taken for whole
    NO_TOMBSTONES = "no-tombstones"  # deletions are not told to who was away
    NO_FENCE = "no-fence"  # who was forgotten is believed again
    NO_FLOOR = "no-floor"  # deletions are collected, and nobody notes that they are not known
    DIGEST_NOT_UPDATED = "digest-not-updated"  # the digest stays what it was at the start
    NO_SWEEP = "no-sweep"  # a reset adds and changes, and removes nothing
    NO_REPUBLISH = "no-republish"  # a new epoch begins without what the owner has
    OLD_EPOCH = "old-epoch"  # a late transaction of an epoch that is over is applied
    ASIDE_NOT_SERVED = "aside-not-served"  # what this node has no table for is kept from others too
    BACKWARDS = "backwards"  # an answer that is older than what is there is applied


SOUND: frozenset[Bug] = frozenset()

"""Bodies about the memory of a running machine. All in MiB, which the Machines API calls MB."""

from hawker.api.bodies.body import Answer, Request


class MemoryAnswer(Answer, frozen=True, kw_only=True):
    """What is enforced now, and how much of it the machine could still use; caches count as usable."""

    limit_mb: int
    available_mb: int


class SetMemoryRequest(Request, frozen=True, kw_only=True):
    limit_mb: int


class ReclaimRequest(Request, frozen=True, kw_only=True):
    amount_mb: int


class ReclaimAnswer(Answer, frozen=True, kw_only=True):
    """How much less the machine uses for it."""

    actual_mb: int

"""Writes the calls of a server to the audit log of its node."""

from contextlib import suppress

from hawker.api.audit import AuditedCall
from hawker.api.grant import share_key
from hawker.audit.audit_log import AuditLog
from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.permission import letters_of
from hawker.token_bucket import Allowance, TokenBuckets

_REFUSALS = Allowance(per_s=0.1, burst=100)
"""Of each caller: of entries of a KiB, 9 MiB a day."""
_REFUSED = frozenset({400, 403, 404, 413, 422, 429})
"""Statuses of a call that did nothing."""


class AuditTrail:
    """Keeps `api.audit.Auditor`. A grave call has two entries: one on disk before it is done, one with its outcome on
    disk before it is answered. Any other call has one, which outlives the daemon that is killed. Refusals cost nothing,
    so of each caller's only some are told, and the rest is counted: nobody pushes out what others did with them."""

    def __init__(self, log: AuditLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._refusals = TokenBuckets(_REFUSALS)
        self._left_out = 0
        self._begun = set[str]()

    async def begins(self, call: AuditedCall) -> None:
        self._write(call, 0)
        self._begun.add(call.request_id)
        await self._log.sync()

    async def ends(self, call: AuditedCall, status: int) -> None:
        begun = call.request_id in self._begun
        self._begun.discard(call.request_id)
        if status in _REFUSED and not begun and not self._is_told(call):
            self._left_out += 1
            return
        try:
            self._write(call, status)
            if call.grave:
                await self._log.sync()
        except Unavailable:
            return  # the log counts it, and the next entry tells how many are missing

    def close(self) -> None:
        with suppress(Unavailable):
            self._tell_left_out()

    def _is_told(self, call: AuditedCall) -> bool:
        """The operator's refusals are all told."""
        return call.grant.root or self._refusals.take(share_key(call.grant).encode(), self._clock.monotonic())

    def _tell_left_out(self) -> None:
        if self._left_out:
            self._log.append(what="refused calls left out", things={"calls": str(self._left_out)})
            self._left_out = 0

    def _write(self, call: AuditedCall, status: int) -> None:
        self._tell_left_out()
        grant = call.grant
        self._log.append(
            what=call.route.name,
            who=grant.name,
            tokens=grant.token_ids[1:],
            source=call.source,
            node=call.node,
            action=letters_of(call.action),
            things=dict(call.params),
            request=call.request_id,
            status=status,
        )

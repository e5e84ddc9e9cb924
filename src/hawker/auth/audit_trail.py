"""Writes the calls of a server to the audit log of its node."""

from hawker.api.audit import AuditedCall
from hawker.audit.audit_log import AuditLog
from hawker.errors import Unavailable
from hawker.permission import letters_of


class AuditTrail:
    """Keeps `api.audit.Auditor`. A grave call has two entries: one on disk before it is done, one with its outcome on
    disk before it is answered. Any other call has one, which outlives the daemon that is killed."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    async def begins(self, call: AuditedCall) -> None:
        self._write(call, 0)
        await self._log.sync()

    async def ends(self, call: AuditedCall, status: int) -> None:
        try:
            self._write(call, status)
            if call.grave:
                await self._log.sync()
        except Unavailable:
            return  # the log counts it, and the next entry tells how many are missing

    def _write(self, call: AuditedCall, status: int) -> None:
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

"""Answers about what this node's audit log has. It is written where calls are answered, and only read here."""

from pathlib import Path
from typing import TYPE_CHECKING

from hawker.api.contract.audit import NODE_AUDIT, AuditSelection, NodeAuditLine, NodeAuditPart, NodeAuditQuery
from hawker.api.handlers import answers
from hawker.api.route import Call, NoParams
from hawker.deferred import deferred
from hawker.errors import Unavailable
from hawker.fair.threads import Pool, in_thread

if TYPE_CHECKING:
    from hawker.audit import audit_log
else:
    audit_log = deferred("hawker.audit.audit_log")


class AuditHandlers:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @answers(NODE_AUDIT)
    async def read(self, call: Call[NoParams, NodeAuditQuery, None]) -> NodeAuditPart:
        return await in_thread(Pool.QUERIES, self._read, call.query)

    def _read(self, query: NodeAuditQuery) -> NodeAuditPart:
        """Raises `Unavailable`."""
        wanted = audit_log.WantedEntries(**{name: getattr(query, name) for name in AuditSelection.__struct_fields__})
        try:
            piece = audit_log.read_piece(self._directory, wanted, query.after, most_bytes=query.most_bytes)
        except OSError as error:
            raise Unavailable(f"the audit log cannot be read: {error.strerror}") from error
        return NodeAuditPart(
            lines=tuple(
                NodeAuditLine(
                    at=each.entry.at, entry=each.line.decode(errors="replace").rstrip("\n"), position=each.position
                )
                for each in piece.found
            ),
            position=piece.position,
            seen=piece.seen,
            more=piece.more,
            broken="" if piece.broken is None else f"{_where(piece.broken.number)}: {piece.broken.why}",
        )


def _where(number: int | None) -> str:
    return "a line" if number is None else f"entry {number}"

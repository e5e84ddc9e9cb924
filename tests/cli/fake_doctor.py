"""The part of the fake node that operators speak to: `findings` is what is wrong, `backup` what a copy is sent as."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from hawker.api import bodies
from hawker.api.route import Call


class FakeDoctor:
    def __init__(self) -> None:
        self.findings: tuple[bodies.FindingInfo, ...] = ()
        self.backup: tuple[bodies.BackupPart, ...] = ()

    async def _list_findings(self, call: Call[Any, Any, Any]) -> bodies.FindingList:
        return bodies.FindingList(findings=self.findings)

    async def _repair_findings(self, call: Call[Any, Any, bodies.RepairRequest]) -> bodies.FindingList:
        """All that is the node's own to mend; what has an error fails."""

        def outcome(finding: bodies.FindingInfo) -> str:
            if finding.error is not None:
                return "failed"
            return "mended" if finding.by == "node" or call.body.end_foreign else "left"

        mended = (msgspec.structs.replace(each, outcome=outcome(each)) for each in self.findings)
        return bodies.FindingList(findings=tuple(mended))

    async def _back_up(self, call: Call[Any, Any, Any]) -> AsyncIterator[bodies.BackupPart]:
        return self._backup_parts()

    async def _backup_parts(self) -> AsyncIterator[bodies.BackupPart]:
        for each in self.backup:
            yield each

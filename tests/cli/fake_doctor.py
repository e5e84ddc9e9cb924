"""The part of the fake node that operators speak to: `findings` is what is wrong, `backup` what a copy is sent as."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from hawker.api.contract.node import BackupPart, FindingInfo, FindingList, RepairRequest
from hawker.api.route import Call


class FakeDoctor:
    def __init__(self) -> None:
        self.findings: tuple[FindingInfo, ...] = ()
        self.backup: tuple[BackupPart, ...] = ()

    async def _list_findings(self, call: Call[Any, Any, Any]) -> FindingList:
        return FindingList(findings=self.findings)

    async def _repair_findings(self, call: Call[Any, Any, RepairRequest]) -> FindingList:
        """All that is the node's own to mend; what has an error fails."""

        def outcome(finding: FindingInfo) -> str:
            if finding.error is not None:
                return "failed"
            return "mended" if finding.by == "node" or call.body.end_foreign else "left"

        mended = (msgspec.structs.replace(each, outcome=outcome(each)) for each in self.findings)
        return FindingList(findings=tuple(mended))

    async def _back_up(self, call: Call[Any, Any, Any]) -> AsyncIterator[BackupPart]:
        return self._backup_parts()

    async def _backup_parts(self) -> AsyncIterator[BackupPart]:
        for each in self.backup:
            yield each

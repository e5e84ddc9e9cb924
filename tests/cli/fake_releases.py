"""The part of the fake node that answers about releases and deploys."""

from datetime import UTC, datetime
from typing import Any

from hawker.api.contract.deploy import DeployInfo, DeployList, DeploySlot
from hawker.api.contract.release import Release, ReleaseList
from hawker.api.route import Call


def release(version: int, status: str, definition: object = None, *, pinned: bool = False) -> Release:
    at = datetime(2026, 1, 2, 3, 4, version, tzinfo=UTC)
    return Release(
        id=f"shop.{version}",
        app_name="shop",
        version=version,
        status=status,
        strategy="rolling",
        image=f"registry.local/shop:{version}",
        pinned=f"registry.local/shop:{version}@sha256:{version:064d}" if pinned else "",
        description="",
        user="ci",
        created_at=at,
        updated_at=at,
        definition=definition,
    )


AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def slot(number: int, state: str, text: str = "", kind: str = "update") -> DeploySlot:
    return DeploySlot(
        number=number, kind=kind, group="web", region="ord", machine_id=f"m{number}", state=state, text=text, at=AT
    )


def deploy_info(serial: int, status: str, *slots: DeploySlot, error: str = "", stage: str = "") -> DeployInfo:
    return DeployInfo(
        app_name="shop",
        version=4,
        status=status,
        strategy="rolling",
        image="registry.local/shop:4",
        user="ci",
        label="",
        stage=stage,
        error=error,
        serial=serial,
        alone=0,
        began_at=AT,
        ended_at=None if status in ("running", "paused", "rolling_back") else AT,
        slots=slots,
    )


class FakeReleases:
    """`releases` is newest first; `deploys` is what a deploy becomes, one state for each look at it."""

    def __init__(self) -> None:
        super().__init__()
        self.releases: tuple[Release, ...] = (
            release(3, "failed", {"env": {"A": "3"}}),
            release(2, "complete", {"app": "old-name", "env": {"A": "2"}, "vm": [{"memory": "1gb"}]}),
        )
        self.deployed = True  # whether it is in the list of deploys
        self.deploys = [
            deploy_info(1, "running", slot(0, "waiting"), slot(1, "waiting"), stage="begins"),
            deploy_info(2, "running", slot(0, "changing"), slot(1, "waiting"), stage="machines come to the release"),
            deploy_info(3, "running", slot(0, "done"), slot(1, "proving", "check up is critical")),
            deploy_info(4, "complete", slot(0, "done"), slot(1, "done")),
        ]

    async def _create_deploy(self, call: Call[Any, Any, Any]) -> DeployInfo:
        return self.deploys[0]

    async def _get_deploy(self, call: Call[Any, Any, Any]) -> DeployInfo:
        after = call.query.after or 0
        return next((each for each in self.deploys if each.serial > after), self.deploys[-1])

    async def _list_deploys(self, call: Call[Any, Any, Any]) -> DeployList:
        return DeployList(deploys=(self.deploys[-1],) if self.deployed else ())

    async def _pause_deploy(self, call: Call[Any, Any, Any]) -> DeployInfo:
        return deploy_info(5, "paused")

    async def _resume_deploy(self, call: Call[Any, Any, Any]) -> DeployInfo:
        return deploy_info(6, "running")

    async def _abort_deploy(self, call: Call[Any, Any, Any]) -> DeployInfo:
        return deploy_info(7, "rolling_back")

    async def _list_releases(self, call: Call[Any, Any, Any]) -> ReleaseList:
        found = [each for each in self.releases if call.query.status in (None, each.status)]
        return ReleaseList(releases=tuple(found[: call.query.limit]))

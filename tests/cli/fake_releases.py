"""The part of the fake node that answers about releases."""

from datetime import UTC, datetime
from typing import Any

from hawker.api.contract.release import Release, ReleaseList
from hawker.api.route import Call


def release(version: int, status: str, definition: object = None) -> Release:
    at = datetime(2026, 1, 2, 3, 4, version, tzinfo=UTC)
    return Release(
        id=f"shop.{version}",
        app_name="shop",
        version=version,
        status=status,
        strategy="rolling",
        image=f"registry.local/shop:{version}",
        description="",
        user="ci",
        created_at=at,
        updated_at=at,
        definition=definition,
    )


class FakeReleases:
    """`releases` is newest first."""

    def __init__(self) -> None:
        super().__init__()
        self.releases: tuple[Release, ...] = (
            release(3, "failed", {"env": {"A": "3"}}),
            release(2, "complete", {"app": "old-name", "env": {"A": "2"}, "vm": [{"memory": "1gb"}]}),
        )

    async def _list_releases(self, call: Call[Any, Any, Any]) -> ReleaseList:
        found = [each for each in self.releases if call.query.status in (None, each.status)]
        return ReleaseList(releases=tuple(found[: call.query.limit]))

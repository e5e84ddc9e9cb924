"""Whose share the work of a run counts in: the organization of what the run works on, or of the run that began it."""

import msgspec

from hawker.fair.turns import NODE
from hawker.fsm import journal
from hawker.fsm.run import Run
from hawker.record.app import org_of
from hawker.record.deploy import DEPLOY_KIND
from hawker.record.machine import MACHINES
from hawker.record.volume import VOLUMES
from hawker.store.contract import Bucket, Reader

_ANCESTORS = 4


class _OfApp(msgspec.Struct, frozen=True, kw_only=True):
    """All that is read of a machine or volume."""

    app: str


_OWNED = {
    "machine": Bucket(MACHINES.name, _OfApp),
    "volume": Bucket(VOLUMES.name, _OfApp),
    "backup": Bucket(VOLUMES.name, _OfApp),
    "snapshots": Bucket(VOLUMES.name, _OfApp),
}


class RunOwners:
    """Keeps `owner_of` of a runner."""

    def __init__(self, store: Reader) -> None:
        self._store = store

    def __call__(self, run: Run) -> str:
        """The organization; the node itself when nobody is left to ask."""
        found: Run | None = run
        for _ in range(_ANCESTORS):
            if found is None:
                break
            if found.resource.kind == DEPLOY_KIND:
                return org_of(self._store, found.resource.id)
            bucket = _OWNED.get(found.resource.kind)
            if bucket is not None:
                owned = self._store.get(bucket, found.resource.id)
                return NODE if owned is None else org_of(self._store, owned.app)
            found = journal.find(self._store, found.parent) if found.parent else None
        return NODE

"""What subjects of quotas have on this node, kept up to date by what the store says was written: an app is counted anew
once something of it has changed, and an organization is the sum of its apps. Whoever admits counts the records
themselves (`quotas.py`); this is for what other nodes are told again and again.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

from hawker.ids import AppName
from hawker.quota.quotas import AppUsage, UsageCount, app_subject, org_subject
from hawker.record.app import APPS, IPS
from hawker.record.machine import BY_APP, MACHINES
from hawker.record.org import Amount
from hawker.record.volume import SNAPSHOTS, VOLUMES, VOLUMES_BY_APP, SnapshotRecord
from hawker.store.contract import Observable, Reader

IN_TURN = 32
"""Apps that are counted anew in each turn, for what is in no store: uploaded files."""

_BY_APP = {bucket.name for bucket in (APPS, BY_APP, VOLUMES_BY_APP, IPS)}  # the key begins with the app's name
_BY_ID = {bucket.name for bucket in (MACHINES, VOLUMES)}


class ObservableReader(Reader, Observable, Protocol):
    """A store that is read, and says what was written to it."""


class UsageTally:
    """Reads all apps and snapshots once, with the first look."""

    def __init__(self, store: ObservableReader, count: UsageCount) -> None:
        self._store = store
        self._count = count
        self._changed: dict[tuple[str, str], None] = {}
        self._org_of: dict[str, str] = {}
        self._apps_of: dict[str, set[str]] = {}
        self._snapshots: dict[str, SnapshotRecord] = {}
        self._snapshots_of: dict[str, set[str]] = {}
        self._usage: dict[str, AppUsage] = {}
        self._sums: dict[str, Amount] = {}
        self._turns: OrderedDict[str, None] = OrderedDict()
        self._began = False
        store.listen(self._note)

    @property
    def orgs(self) -> Iterable[str]:
        """The organizations that have apps here, as the last look found them."""
        return self._apps_of

    def look(self) -> None:
        """Takes in what was written since the last look."""
        changed, self._changed = self._changed, {}
        if not self._began:
            self._began = True
            changed = dict.fromkeys((APPS.name, name) for name, _ in self._store.scan(APPS))
            changed |= dict.fromkeys((SNAPSHOTS.name, key) for key, _ in self._store.scan(SNAPSHOTS))
        for bucket, key in changed:
            self._take(bucket, key)

    def turn(self) -> None:
        """Has the next apps counted anew, whatever the store said."""
        for _ in range(min(IN_TURN, len(self._turns))):
            self._forget(self._turns.popitem(last=False)[0])

    def of(self, subject: str) -> Amount:
        """What the subject has, as of the last look, or later."""
        found = self._sums.get(subject)
        if found is None:
            kind, _, name = subject.partition("/")
            apps = {name} if kind == "app" else self._apps_of.get(name, set())
            found = self._sums[subject] = self._count.total(self._of_app(app) for app in sorted(apps))
        return found

    def _note(self, bucket: str, key: str) -> None:
        if bucket in _BY_APP or bucket in _BY_ID or bucket == SNAPSHOTS.name:
            self._changed[bucket, key] = None

    def _take(self, bucket: str, key: str) -> None:
        if bucket in _BY_APP:
            app = key.partition("/")[0]
            if bucket == APPS.name:
                self._place(app)
            self._forget(app)
        elif bucket == SNAPSHOTS.name:
            self._take_snapshot(key)
        else:
            record = self._store.get(MACHINES, key) if bucket == MACHINES.name else self._store.get(VOLUMES, key)
            if record is not None:  # of one that is gone, the index by app tells
                self._forget(record.app)

    def _place(self, app: str) -> None:
        """An app that is made again may be another organization's."""
        record, before = self._store.get(APPS, app), self._org_of.pop(app, None)
        if before is not None:
            self._sums.pop(org_subject(before), None)
            self._apps_of[before].discard(app)
            if not self._apps_of[before]:
                del self._apps_of[before]
        if record is not None:
            self._org_of[app] = record.org
            self._apps_of.setdefault(record.org, set()).add(app)

    def _take_snapshot(self, key: str) -> None:
        record, before = self._store.get(SNAPSHOTS, key), self._snapshots.pop(key, None)
        if before is not None:
            self._snapshots_of[before.app].discard(key)
            self._forget(before.app)
        if record is not None:
            self._snapshots[key] = record
            self._snapshots_of.setdefault(record.app, set()).add(key)
            self._forget(record.app)

    def _forget(self, app: str) -> None:
        self._usage.pop(app, None)
        self._sums.pop(app_subject(app), None)
        if app in self._org_of:
            self._sums.pop(org_subject(self._org_of[app]), None)

    def _of_app(self, app: str) -> AppUsage:
        found = self._usage.get(app)
        if found is None:
            snapshots = [self._snapshots[key] for key in self._snapshots_of.get(app, ())]
            found = self._usage[app] = self._count.usage(self._store, AppName(app), snapshots)
            self._turns[app] = None
        return found

"""The quotas of a node: which apply to an app, and whether it may have more. Asked inside the transaction that gives
it more, so on one node they are exact. What the subject has on other nodes is what they told last.
"""

from collections.abc import Callable, Mapping

from hawker.app import DEFAULT_ORG
from hawker.clock import Clock
from hawker.errors import QuotaExceeded, Unprocessable
from hawker.ids import AppName
from hawker.quota.usage import UsageCount
from hawker.record.app import APPS
from hawker.record.quota import QUOTAS, Amount, QuotaRecord, QuotaRule
from hawker.store.contract import Reader, Store, Tx

EVERY_ORG = "org/*"
MOST_QUOTAS = 10_000
_MOST = 1 << 53
NOTHING = Amount()


def org_subject(org: str) -> str:
    return f"org/{org}"


def app_subject(app: str) -> str:
    return f"app/{app}"


class Quotas:
    """In a fleet, another part tells what other nodes have (`learn`); a node alone knows all."""

    def __init__(self, store: Store, clock: Clock, count: UsageCount) -> None:
        self._store = store
        self._clock = clock
        self.count = count
        self._told: Mapping[str, QuotaRecord] = {}
        self._elsewhere: Mapping[str, Amount] = {}
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, changed: Callable[[str], None]) -> None:
        """Called in the event loop's thread with a subject of a quota that has got more here."""
        self._listeners.append(changed)

    def learn(self, told: Mapping[str, QuotaRecord], elsewhere: Mapping[str, Amount]) -> None:
        """What other nodes set, and what each subject has on them together."""
        self._told, self._elsewhere = told, elsewhere

    def all(self, reader: Reader) -> dict[str, QuotaRecord]:
        """By subject, those that limit something."""
        found = dict(reader.scan(QUOTAS))
        for subject, record in self._told.items():
            found[subject] = _newer(found.get(subject), record) or record
        return {subject: record for subject, record in sorted(found.items()) if record.limits != QuotaRule()}

    async def put(self, subject: str, limits: QuotaRule, by: str) -> QuotaRecord:
        """Durable when it returns. Without limits there is no quota any more. Raises `Unprocessable`."""
        for name in limits.__struct_fields__:
            most = getattr(limits, name)
            if most is not None and not 0 <= most <= _MOST:
                raise Unprocessable(f"{name}: a limit is 0 or more, not {most}")

        def apply(tx: Tx) -> QuotaRecord:
            known = _newer(tx.get(QUOTAS, subject), self._told.get(subject))
            if known is None and tx.count(QUOTAS) >= MOST_QUOTAS:
                raise Unprocessable(f"there are {MOST_QUOTAS} quotas, the most there can be: clear some first")
            at = max(self._clock.now(), 0.0 if known is None else known.at + 1e-3)
            made = QuotaRecord(subject=subject, limits=limits, at=at, by=by)
            tx.put(QUOTAS, subject, made)
            return made

        return await self._store.write(apply)

    def check(self, tx: Tx, app: AppName, more: Amount) -> None:
        """Whether the app may have `more` beside what it has; asked before it is written. Raises `QuotaExceeded`."""
        for subject, record in self._applying(tx, app):
            has = self.used(tx, subject).plus(self._elsewhere.get(subject, NOTHING))
            over = record.limits.over(has, more)
            if over:
                raise QuotaExceeded(_refusal(subject, record.limits, has, more, over), shortfall=over)
            tx.on_commit(lambda subject=subject: self._changed(subject))  # type: ignore[misc]

    def used(self, reader: Reader, subject: str) -> Amount:
        """On this node."""
        kind, _, name = subject.partition("/")
        return self.count.of_app(reader, AppName(name)) if kind == "app" else self.count.of_org(reader, name)

    def elsewhere(self, subject: str) -> Amount:
        """On the other nodes, as they told it last."""
        return self._elsewhere.get(subject, NOTHING)

    def subjects(self, reader: Reader) -> list[str]:
        """Whose amounts are to be told to other nodes: those with a quota, and every org where all have one."""
        quotas = self.all(reader)
        named = {subject for subject in quotas if subject != EVERY_ORG}
        if EVERY_ORG in quotas:
            named |= {org_subject(app.org) for _, app in reader.scan(APPS) if app.org != DEFAULT_ORG}
        return sorted(named)

    def _applying(self, reader: Reader, app: AppName) -> list[tuple[str, QuotaRecord]]:
        owner = reader.get(APPS, app)
        org = DEFAULT_ORG if owner is None else owner.org
        own = self._record(reader, org_subject(org))
        if own is None and org != DEFAULT_ORG:
            own = self._record(reader, EVERY_ORG)
        found = ((org_subject(org), own), (app_subject(app), self._record(reader, app_subject(app))))
        return [(subject, record) for subject, record in found if record is not None]

    def _record(self, reader: Reader, subject: str) -> QuotaRecord | None:
        known = _newer(reader.get(QUOTAS, subject), self._told.get(subject))
        return None if known is None or known.limits == QuotaRule() else known

    def _changed(self, subject: str) -> None:
        for listener in self._listeners:
            listener(subject)


def _newer(first: QuotaRecord | None, second: QuotaRecord | None) -> "QuotaRecord | None":
    """Of two nodes' words about one subject; the same at every node."""
    known = [each for each in (first, second) if each is not None]
    return max(known, key=lambda each: (each.at, each.by, repr(each.limits)), default=None)


def _refusal(subject: str, limits: QuotaRule, has: Amount, more: Amount, over: Mapping[str, int]) -> str:
    kind, _, name = subject.partition("/")
    what = "; ".join(
        f"{key}: has {getattr(has, key)}, asked for {getattr(more, key)} more, may have {getattr(limits, key)},"
        f" {amount} too many"
        for key, amount in over.items()
    )
    return f"the quota of {kind} '{name}' does not allow this: {what}"

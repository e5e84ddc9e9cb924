"""Network policies of apps: kept here, and worked out into what each machine may send and be sent.

A machine that a policy selects for a direction is allowed what the policies that select it allow together, and nothing
else. Without a policy for a direction everything is allowed. Pure but for the store.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address

from hawker.clock import Clock
from hawker.errors import NotFound, Unprocessable
from hawker.host.network_policy import FilteredPort, FilteredPorts, PacketFilter
from hawker.machine import GONE, State
from hawker.policy import Direction
from hawker.record.app import APPS
from hawker.record.machine import BY_APP, MACHINES, MachineRecord
from hawker.record.network_policy import POLICIES, PolicyRecord, PolicyRule, PolicySelector
from hawker.store.contract import Reader, Store, Tx

MAX_POLICIES = 32
_LEAVING = GONE | {State.DESTROYING}


class Policies:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def list(self, app: str) -> list[PolicyRecord]:
        """Oldest first."""
        return sorted(
            (record for _, record in self._store.scan(POLICIES, f"{app}/")),
            key=lambda record: (record.created_at, record.id),
        )

    def get(self, app: str, policy_id: str) -> PolicyRecord:
        return _get(self._store, app, policy_id)

    async def put(
        self, app: str, *, policy_id: str | None, name: str, selector: PolicySelector, rules: tuple[PolicyRule, ...]
    ) -> PolicyRecord:
        """A new one, or another content for one that is there. Durable when it returns, and not yet in force."""
        fresh, now = self._clock.token_bytes(8).hex(), self._clock.now()

        def apply(tx: Tx) -> PolicyRecord:
            if tx.get(APPS, app) is None:
                raise NotFound("app not found")
            there = None if policy_id is None else _get(tx, app, policy_id)
            if there is None and tx.count(POLICIES, f"{app}/") >= MAX_POLICIES:
                raise Unprocessable(f"an app has at most {MAX_POLICIES} network policies: put their rules together")
            record = PolicyRecord(
                id=there.id if there else fresh,
                name=name,
                selector=selector,
                rules=rules,
                created_at=there.created_at if there else now,
                updated_at=now,
            )
            tx.put(POLICIES, f"{app}/{record.id}", record)
            return record

        return await self._store.write(apply)

    async def delete(self, app: str, policy_id: str) -> None:
        def apply(tx: Tx) -> None:
            _get(tx, app, policy_id)
            tx.delete(POLICIES, f"{app}/{policy_id}")

        await self._store.write(apply)


def _get(reader: Reader, app: str, policy_id: str) -> PolicyRecord:
    if reader.get(APPS, app) is None:
        raise NotFound("app not found")
    record = reader.get(POLICIES, f"{app}/{policy_id}")
    if record is None:
        raise NotFound("network policy not found")
    return record


def by_app(reader: Reader) -> Mapping[str, list[PolicyRecord]]:
    """Only apps that have any."""
    found: dict[str, list[PolicyRecord]] = {}
    for key, record in reader.scan(POLICIES):
        found.setdefault(key.partition("/")[0], []).append(record)
    return found


def fences(reader: Reader) -> Iterator[PacketFilter]:
    """Of all machines that are there, also those that are off: a fence stands before its machine starts."""
    for app, policies in by_app(reader).items():
        for _, pointer in reader.scan(BY_APP, f"{app}/"):
            record = reader.get(MACHINES, pointer.id)
            if record is not None and record.state not in _LEAVING:
                fence = fence_of(record, policies)
                if fence.ingress is not None or fence.egress is not None:
                    yield fence


def fence_of(record: MachineRecord, policies: Iterable[PolicyRecord]) -> PacketFilter:
    rules = [rule for policy in policies if selects(policy.selector, record) for rule in policy.rules]
    return PacketFilter(
        machine_id=record.id,
        network_id=record.network.network_id,
        ipv4=IPv4Address(record.network.ipv4) if record.network.ipv4 else None,
        ingress=_together(rule for rule in rules if rule.direction is Direction.INGRESS),
        egress=_together(rule for rule in rules if rule.direction is Direction.EGRESS),
    )


def selects(selector: PolicySelector, record: MachineRecord) -> bool:
    """A selector of metadata asks for all of its pairs."""
    metadata = record.config.metadata or {}
    wanted = selector.metadata
    return (
        selector.all
        or record.id in selector.machines
        or (bool(wanted) and all(metadata.get(key) == value for key, value in wanted.items()))
    )


def _together(rules: Iterable[PolicyRule]) -> FilteredPorts | None:
    """None when no rule is about it, or when one allows everything."""
    known = list(rules)
    if not known or any(rule.ports is None for rule in known):
        return None
    return frozenset(FilteredPort(port.protocol.value, port.port) for rule in known for port in rule.ports or ())

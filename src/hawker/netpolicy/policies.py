"""Network policies of apps: kept here, worked out into what each machine may send and be sent, and kept in force.

A machine that a policy selects for a direction is allowed what the policies that select it allow together, and nothing
else. Without a policy for a direction everything is allowed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Protocol

import anyio
from anyio.lowlevel import checkpoint

from hawker.clock import Clock
from hawker.errors import HawkerError, NotFound, Unprocessable
from hawker.host.network_policy import FilteredPort, FilteredPorts, PacketFilter
from hawker.ids import MachineId
from hawker.log import bind
from hawker.machine import GONE, State
from hawker.policy import Direction
from hawker.record.app import APPS, POLICIES, PolicyRecord, PolicyRule, PolicySelector
from hawker.record.machine import BY_APP, MACHINES, MachineRecord
from hawker.store.contract import Reader, Store, Tx

MAX_POLICIES = 32
_LEAVING = GONE | {State.DESTROYING}


class Policies:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def list(self, app: str) -> list[PolicyRecord]:
        """The policies of `app`, oldest first."""
        return sorted(
            (record for _, record in self._store.scan(POLICIES, f"{app}/")),
            key=lambda record: (record.created_at, record.id),
        )

    def get(self, app: str, policy_id: str) -> PolicyRecord:
        return _get(self._store, app, policy_id)

    async def put(
        self, app: str, *, policy_id: str | None, name: str, selector: PolicySelector, rules: tuple[PolicyRule, ...]
    ) -> PolicyRecord:
        """Writes a new policy, or another content for one that is there. Durable when it returns, and not yet in
        force."""
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
    """The policies of each app that has any."""
    found: dict[str, list[PolicyRecord]] = {}
    for key, record in reader.scan(POLICIES):
        found.setdefault(key.partition("/")[0], []).append(record)
    return found


def packet_filters(reader: Reader) -> Iterator[PacketFilter]:
    """The packet filters of all machines that are there, also those that are off: a filter stands before its machine
    starts."""
    for app, policies in by_app(reader).items():
        for _, pointer in reader.scan(BY_APP, f"{app}/"):
            record = reader.get(MACHINES, pointer.id)
            if record is not None and record.state not in _LEAVING:
                found = packet_filter_of(record, policies)
                if found.ingress is not None or found.egress is not None:
                    yield found


def packet_filter_of(record: MachineRecord, policies: Iterable[PolicyRecord]) -> PacketFilter:
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


# Keeps in force what the network policies in the store say: worked out anew each time, compared with what the host
# has, and replaced whole where that differs. Nothing is remembered in between.

_log = bind("hawker.netpolicy")

_PAGE = 200


class HostFilters(Protocol):
    """Packet filters on the host; they outlive the daemon."""

    async def install_filters(self, wanted: Sequence[PacketFilter]) -> None:
        """Puts these filters in force and no others, in one go; nothing is touched where they stand. Raises
        `HawkerError` or `OSError`."""

    async def in_force(self, wanted: Sequence[PacketFilter]) -> bool:
        """Whether these stand, and no others."""

    async def lack_of_filters(self) -> str:
        """Why this host cannot have any, in a sentence; empty when it can."""


class PolicyEnforcer:
    """`host` is None for drivers whose machines have no network of their own."""

    def __init__(self, store: Store, host: HostFilters | None) -> None:
        self._store = store
        self._host = host
        self._change = anyio.Lock()

    async def refusal(self) -> str:
        if self._host is None:
            return "this node's driver, whose machines use the host's network"
        return await self._host.lack_of_filters()

    async def renew(self, *, without: Collection[MachineId] = ()) -> None:
        """Puts the policies in force as the newest records have them. `without` are machines on their way out. Raises
        `HawkerError` or `OSError`; the reconciler comes back to it."""
        if self._host is None:
            return
        async with self._change:
            await self._host.install_filters(await self._wanted(without))

    async def renew_for(self, app: str, *, without: Collection[MachineId] = ()) -> None:
        """Puts the policies in force after a change of one app, and does nothing at all where it has no policy."""
        if next(self._store.scan(POLICIES, f"{app}/", limit=1), None) is not None:
            await self.renew(without=without)

    async def renew_soon(self, app: str, *, without: Collection[MachineId] = ()) -> None:
        """Puts the policies in force after what is done whatever becomes of this: now, or, if the host refuses, when
        the reconciler comes by."""
        try:
            await self.renew_for(app, without=without)
        except (HawkerError, OSError) as error:
            _log.error("network policies are not in force yet", extra={"reason": str(error)})

    async def stand(self) -> bool:
        if self._host is None:
            return True
        async with self._change:
            return await self._host.in_force(await self._wanted(()))

    async def _wanted(self, without: Collection[MachineId]) -> Sequence[PacketFilter]:
        """In pages, so that others are answered while thousands of machines are looked at."""
        found: list[PacketFilter] = []
        with self._store.snapshot() as reader:
            for number, each in enumerate(packet_filters(reader), 1):
                if each.machine_id not in without:
                    found.append(each)
                if number % _PAGE == 0:
                    await checkpoint()
        return _in_order(found)


def wanted(reader: Reader) -> Sequence[PacketFilter]:
    """The filters that are to be in force when nothing is under way."""
    return _in_order(packet_filters(reader))


def _in_order(found: Iterable[PacketFilter]) -> Sequence[PacketFilter]:
    return sorted(found, key=lambda each: each.machine_id)

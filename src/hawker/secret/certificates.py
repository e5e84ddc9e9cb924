"""Certificates of apps' host names: sealed in the store, opened by who ends TLS, never shown.

A host name is one app's. The key that seals them is made from the node's own and good for nothing else: the process
that serves strangers is given it, and not the key of all secrets.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import HawkerError, NotFound, Unprocessable
from hawker.fair.occupancy import Occupancy
from hawker.fair.table import CERTIFICATES as CERTIFICATES_SHARE
from hawker.feed import ShownChallenge
from hawker.ids import AppName, NodeId
from hawker.keyed_locks import KeyedLocks
from hawker.log import bind
from hawker.record.app import APPS, CERTIFICATE_ORDERS, CERTIFICATES, CertificateRecord, org_of
from hawker.store.contract import Reader, Store, Tx
from hawker.value_object import ValueObject
from hawker.vault import Vault

if TYPE_CHECKING:
    from hawker.secret import certificate_chain
    from hawker.secret.certificate_chain import KeyPair
else:
    certificate_chain = deferred("hawker.secret.certificate_chain")

MAX_OF_APP = 500
"""The most certificates, and the most orders, of an app. All of a node are `fair.table.CERTIFICATES`: with
`certificate_chain.MAX_KEPT_BYTES` each they fit into what the edge is told at once."""
SOON_S = 14 * 86_400.0
PLATFORM = AppName("")
"""The app of the certificate of the platform's own domain: it is shown for the app that a name's first label is."""
PURPOSE = "certificates"
AFFIRM_EVERY_S = 10.0
_log = bind("hawker.certificates")
ACCOUNT_PURPOSE = "account at a certificate authority"


class FarCertificate(ValueObject, frozen=True):
    """A certificate that another node has, sealed as this node seals its own."""

    hostname: str
    """The host name in A-labels and lower case; the first label may be `*`."""
    app: AppName
    sealed: bytes
    """Chain and private key."""
    created_at: float
    """The time, in Unix seconds, since when its node has one for the name. Of two apps' the name is the earlier
    one's."""
    updated_at: float
    """The time, in Unix seconds, since when its node has this certificate."""
    not_after: float
    """The time, in Unix seconds, until when the certificate is valid. Of several of one app the later one is shown."""


class HostnameKeepers(Protocol):
    """The nodes of a fleet that keep whose a host name is."""

    def keepers(self, hostname: str) -> tuple[NodeId, ...]: ...

    async def keep(self, hostname: str, app: AppName, org: str) -> None:
        """Keeps the host name for this app alone, from now on. Raises `Unprocessable` where it is another app's,
        `QuotaExceeded` where the organization has as many as it may, and `Unavailable` when too few of them answer:
        then nothing is kept."""

    async def affirm(self, hostname: str, app: AppName, org: str) -> None:
        """As `keep`, for a name that the app has: what is kept stays kept when this raises."""

    async def release(self, hostname: str, app: AppName) -> None:
        """Releases the host name, as far as the keepers answer."""


class Certificates:
    """`vault` is the node's; what is sealed here is sealed by one made from it. `domain` is the platform's
    own, and `api_hostname` the host name of its API."""

    def __init__(
        self, store: Store, vault: Vault, clock: Clock, domain: str | None = None, api_hostname: str | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self.domain = domain
        self._api_hostname = api_hostname
        self.key = vault.key_for(PURPOSE)
        self._vault = Vault(self.key, clock)
        self.account_key = vault.key_for(ACCOUNT_PURPOSE)
        self.challenges: list[ShownChallenge] = []
        self.refused_orders: dict[str, str] = {}  # of the platform itself: why each host name cannot be ordered
        self._far_challenges: tuple[ShownChallenge, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        self._far: dict[str, list[FarCertificate]] = {}
        self._keepers: HostnameKeepers | None = None
        self._changing = KeyedLocks[str]()  # by host name
        self._affirmed: dict[str, tuple[NodeId, ...]] = {}  # who keeps each of the host names that apps have here

    @property
    def platform_hostnames(self) -> tuple[str, ...]:
        """The platform's own host names: one for all apps' names below its domain, and that of its API."""
        wide = () if self.domain is None else (f"*.{self.domain}",)
        return wide if self._api_hostname is None else (*wide, self._api_hostname)

    def meet(self, keepers: HostnameKeepers) -> None:
        """Has other nodes keep whose a host name is, too, from now on."""
        self._keepers = keepers

    def keepers(self, hostname: str) -> tuple[NodeId, ...]:
        """The nodes that keep whose it is; none where this node is alone."""
        return () if self._keepers is None else self._keepers.keepers(hostname)

    def app_of(self, hostname: str) -> AppName | None:
        """The app that has the host name, as far as this node knows without asking; None when it knows of none."""
        record, order = self._store.get(CERTIFICATES, hostname), self._store.get(CERTIFICATE_ORDERS, hostname)
        if record is not None:
            return record.app
        if order is not None and order.owned:
            return order.app
        far = self._far.get(hostname)
        return None if far is None else _shown(far).app

    def _has(self, app: str, hostname: str) -> bool:
        record, order = self._store.get(CERTIFICATES, hostname), self._store.get(CERTIFICATE_ORDERS, hostname)
        return (record is not None and record.app == app) or (order is not None and order.owned and order.app == app)

    def hostnames(self, app: str | None = None) -> dict[str, AppName]:
        """The host names with a certificate or an order for one, of this app or of all, each with its app."""
        kept = [(record.hostname, record.app) for record in self.all()]
        kept += [(order.hostname, order.app) for _, order in self._store.scan(CERTIFICATE_ORDERS) if order.owned]
        return {hostname: whose for hostname, whose in kept if whose != PLATFORM and app in (None, whose)}

    @asynccontextmanager
    async def claiming(self, app: str, hostname: str) -> AsyncIterator[None]:
        """A context for what gives the app this host name; it is claimed before, unless the app has it already. Raises
        `Unprocessable` where it is another app's, `QuotaExceeded` where its organization has as many as it may,
        `Unavailable` when too few keepers answer."""
        async with self._changing.hold(hostname):
            if self._keepers is None or app == PLATFORM or self._has(app, hostname):
                yield
                return
            await self._keepers.keep(hostname, AppName(app), org_of(self._store, app))
            try:
                yield
            except HawkerError:
                await self._release(app, hostname)
                raise

    async def release(self, app: str, hostname: str) -> None:
        """Unless the app has something of the name."""
        async with self._changing.hold(hostname):
            await self._release(app, hostname)

    async def _release(self, app: str, hostname: str) -> None:
        if self._keepers is not None and app != PLATFORM and not self._has(app, hostname):
            self._affirmed.pop(hostname, None)
            await self._keepers.release(hostname, AppName(app))

    async def affirm(self) -> None:
        """Claims, until cancelled, what apps here have since before there were claims, or other nodes keep now."""
        while True:
            for hostname, app in self.hostnames().items():
                await self._affirm(hostname, app)
            await self._clock.sleep(AFFIRM_EVERY_S)

    async def _affirm(self, hostname: str, app: AppName) -> None:
        async with self._changing.hold(hostname):
            if self._keepers is None or not self._has(app, hostname):
                return
            among = self._keepers.keepers(hostname)
            if self._affirmed.get(hostname) == among:
                return
            try:
                await self._keepers.affirm(hostname, app, org_of(self._store, app))
            except Unprocessable as error:
                _log.warning("two apps have one host name", extra={"hostname": hostname, "reason": str(error)})
            except HawkerError:
                return
            self._affirmed[hostname] = among

    def listen(self, changed: Callable[[], None]) -> None:
        """`changed` is called after each change."""
        self._listeners.append(changed)

    def all(self) -> Iterator[CertificateRecord]:
        return (record for _, record in self._store.scan(CERTIFICATES))

    def served(self) -> dict[str, CertificateRecord | FarCertificate]:
        """The certificates that edges show, by host name, also of other nodes. A name is of the app that had it first;
        of several of that app, as a home that is lost and the next one have them, the one that expires last is
        shown."""
        there: dict[str, list[CertificateRecord | FarCertificate]] = {
            record.hostname: [record] for record in self.all()
        }
        for hostname, far in self._far.items():
            there.setdefault(hostname, []).extend(far)
        return {hostname: _shown(found) for hostname, found in there.items()}

    def shown(self, hostname: str) -> CertificateRecord | FarCertificate | None:
        """The certificate that edges show for a client that names it, if there is one for just this name."""
        own = self._store.get(CERTIFICATES, hostname)
        there = (*(() if own is None else (own,)), *self._far.get(hostname, ()))
        return _shown(there) if there else None

    def far(self, hostname: str, app: AppName, pair: bytes, created_at: float, updated_at: float) -> FarCertificate:
        """`pair` is what `opened` gave at its own node."""
        not_after = certificate_chain.expires_at(msgspec.msgpack.decode(pair, type=certificate_chain.KeyPair))
        sealed = self._vault.seal(owner_of(hostname), pair)
        return FarCertificate(hostname, app, sealed, created_at, updated_at, not_after)

    def tell_far(self, found: Iterable[FarCertificate]) -> None:
        """Takes all certificates of other nodes, as they are now."""
        self._far = {}
        for each in found:
            self._far.setdefault(each.hostname, []).append(each)
        self._tell()

    def opened(self, record: CertificateRecord) -> bytes:
        """Chain and key, in clear. Raises `Fault`."""
        return self._vault.open(owner_of(record.hostname), record.sealed)

    def chain(self, record: CertificateRecord) -> str:
        """The chain of a certificate in PEM. Raises `Fault`."""
        return open_pair(self._vault, record.hostname, record.sealed).chain.decode()

    def list(self, app: str) -> list[CertificateRecord]:
        """The certificates of `app`, by host name."""
        return [record for record in self.all() if record.app == app]

    def ending(self) -> Iterator[tuple[str, str]]:
        """Host names whose certificate ends in two weeks, or in the last quarter of a shorter life, with what keeps it
        from being renewed; and the platform's own where none can be had or ordered. Nothing is said of one in whose
        place another node's is shown."""
        now, orders = self._clock.now(), {order.hostname: order for _, order in self._store.scan(CERTIFICATE_ORDERS)}
        for record in self.all():
            if self.shown(record.hostname) != record:
                continue
            soon_s = min(SOON_S, (record.not_after - record.updated_at) / 4) if record.ordered else SOON_S
            if now >= record.not_after - soon_s:
                order = orders.get(record.hostname)
                why = f": {order.reason}" if order is not None and order.reason else ""
                left = (record.not_after - now) / 86_400
                yield record.hostname, f"{f'{left:.1f} days are left' if left > 0 else 'it has expired'}{why}"
        for order in orders.values():
            if order.app == PLATFORM and order.reason and self.shown(order.hostname) is None:
                yield order.hostname, f"there is none: {order.reason}"
        for hostname, why in self.refused_orders.items():
            yield hostname, f"it cannot be ordered: {why}"
        name, tried = self._api_hostname, orders.keys() | self.refused_orders.keys()
        if name is not None and not self.covers(name) and tried.isdisjoint((name, wildcard_of(name))):
            yield name, "there is none: import one with `hawker node certs import`, or order it (--acme-directory)"

    def covers(self, hostname: str) -> bool:
        """Whether edges have the platform's own certificate for it, or one for its wildcard."""
        found = map(self.shown, (hostname, wildcard_of(hostname)))
        return any(each is not None and each.app == PLATFORM for each in found)

    def refusal(self, hostname: str) -> str:
        """Why one of the platform's own could not be ordered, as far as that was tried."""
        order = self._store.get(CERTIFICATE_ORDERS, hostname)
        reason = order.reason if order is not None and order.app == PLATFORM else ""
        return self.refused_orders.get(hostname, reason)

    def get(self, app: str, text: str) -> CertificateRecord:
        return _found(self._store, app, certificate_chain.hostname_of(text))

    @property
    def shown_challenges(self) -> tuple[ShownChallenge, ...]:
        """The challenges of this node's orders and of others'."""
        return (*self.challenges, *self._far_challenges)

    def tell_far_challenges(self, found: Iterable[ShownChallenge]) -> None:
        """Takes all challenges of other nodes, as they are now."""
        told = tuple(found)
        if told != self._far_challenges:
            self._far_challenges = told
            self._tell()

    def check_claim(self, app: str, hostname: str) -> None:
        """Whether the app may have this host name. Raises `Unprocessable` for another app's or the platform's."""
        claimed = self._far.get(hostname)
        if claimed is not None and _shown(claimed).app != app:
            raise Unprocessable(f"hostname: {hostname} is another app's")
        if app == PLATFORM:
            return
        if hostname == self._api_hostname:
            raise Unprocessable(f"hostname: {hostname} is the platform's own: its API is reached there")
        if self.domain is None or not is_below(hostname, self.domain):
            return
        if hostname != f"{app}.{self.domain}":
            raise Unprocessable(f"hostname: below {self.domain} an app has {app}.{self.domain} and nothing else")

    def challenge(self, shown: ShownChallenge) -> None:
        """The edge answers it until `unchallenge`."""
        self.challenges.append(shown)
        self._tell()

    def unchallenge(self, shown: ShownChallenge) -> None:
        self.challenges.remove(shown)
        self._tell()

    def find(self, app: str, hostname: str) -> CertificateRecord | None:
        record = self._store.get(CERTIFICATES, hostname)
        return record if record is not None and record.app == app else None

    async def put(
        self, app: str, text: str, fullchain: str, private_key: str, *, ordered: bool = False
    ) -> CertificateRecord:
        """Put a certificate, durable when this returns, in place of what was there. A certificate that was `ordered` is
        taken only while its order is there. Raises `Unprocessable`, also when the name is another app's, and `NotFound`
        when there is no such app."""
        hostname, now = certificate_chain.hostname_of(text), self._clock.now()
        self.check_claim(app, hostname)
        read = certificate_chain.read_certificate(hostname, fullchain, private_key, now)
        fresh = CertificateRecord(
            hostname=hostname,
            app=AppName(app),
            sealed=self._vault.seal(owner_of(hostname), msgspec.msgpack.encode(read.pair)),
            kind=read.kind,
            authority=read.authority,
            not_after=read.not_after,
            created_at=now,
            updated_at=now,
            ordered=ordered,
        )

        def apply(tx: Tx) -> CertificateRecord:
            if app != PLATFORM and tx.get(APPS, app) is None:
                raise NotFound("app not found")
            order, there = tx.get(CERTIFICATE_ORDERS, hostname), tx.get(CERTIFICATES, hostname)
            if ordered and (order is None or order.app != app):
                raise NotFound(f"the order of {hostname} is gone")
            if order is not None and order.app != app and order.owned:
                raise Unprocessable(f"hostname: {hostname} is another app's")
            if there is not None and there.app != app:
                raise Unprocessable(f"hostname: {hostname} is another app's")
            if there is None:
                check_room(tx, app)
            kept = {} if there is None else {"created_at": there.created_at, "points_here": there.points_here}
            record = msgspec.structs.replace(fresh, **kept)
            tx.put(CERTIFICATES, hostname, record)
            return record

        async with self.claiming(app, hostname):
            record = await self._store.write(apply)
        self._tell()
        return record

    async def note_check(self, app: str, hostname: str, *, points_here: bool) -> CertificateRecord:
        def apply(tx: Tx) -> CertificateRecord:
            record = msgspec.structs.replace(_found(tx, app, hostname), points_here=points_here)
            tx.put(CERTIFICATES, hostname, record)
            return record

        return await self._store.write(apply)

    async def delete(self, app: str, text: str) -> CertificateRecord:
        """Deletes a certificate and returns what was there. Raises `NotFound`."""
        hostname = certificate_chain.hostname_of(text)

        def apply(tx: Tx) -> CertificateRecord:
            record = _found(tx, app, hostname)
            tx.delete(CERTIFICATES, hostname)
            return record

        record = await self._store.write(apply)
        self._tell()
        await self.release(app, hostname)
        return record

    def _tell(self) -> None:
        for changed in self._listeners:
            changed()


def _shown(found: Sequence[CertificateRecord | FarCertificate]) -> CertificateRecord | FarCertificate:
    """Of those for one host name, at least one."""
    app = min(found, key=lambda each: (each.created_at, each.app)).app
    return max((each for each in found if each.app == app), key=lambda each: each.not_after)


def open_pair(vault: Vault, hostname: str, sealed: bytes) -> "KeyPair":
    """`vault` has the key of `PURPOSE`. Raises `Fault`."""
    return msgspec.msgpack.decode(vault.open(owner_of(hostname), sealed), type=certificate_chain.KeyPair)


def wildcard_of(hostname: str) -> str:
    return f"*.{hostname.partition('.')[2]}"


def is_below(hostname: str, domain: str) -> bool:
    """Whether a host name is the domain, or in it."""
    return hostname == domain or hostname.endswith(f".{domain}")


def proof_name(domain: str, app: str, base: str) -> str:
    """The name at which our zone says what a certificate authority looks for: for a name below the domain at the name
    itself, for others where the app's delegation leads to. `base` has no `*`."""
    if is_below(base, domain):
        return f"_acme-challenge.{base}"
    return f"{base}.{hashlib.sha256(app.encode()).hexdigest()[:8]}.acme.{domain}"


def owner_of(hostname: str) -> str:
    return f"certificate {hostname}"


def forget_all(tx: Tx, app: str) -> None:
    """Deletes all certificates and orders of an app, in the transaction that removes it."""
    for hostname, record in list(tx.scan(CERTIFICATES)):
        if record.app == app:
            tx.delete(CERTIFICATES, hostname)
    for hostname, order in list(tx.scan(CERTIFICATE_ORDERS)):
        if order.app == app:
            tx.delete(CERTIFICATE_ORDERS, hostname)


def _found(reader: Reader, app: str, hostname: str) -> CertificateRecord:
    record = reader.get(CERTIFICATES, hostname)
    if record is None or record.app != app:
        raise NotFound(f"certificate {hostname} not found")
    return record


def check_room(tx: Tx, app: str) -> None:
    """Checks that the app may have one certificate more. Raises `Unprocessable`."""
    check_share(tx, app, [record.app for _, record in tx.scan(CERTIFICATES)], "certificates")


def check_share(reader: Reader, app: str, apps: Sequence[AppName], what: str) -> None:
    """Whether the app may have one more of `what`, of which `apps` have one each. Raises `Unprocessable`."""
    if sum(each == app for each in apps) >= MAX_OF_APP:
        raise Unprocessable(f"an app has at most {MAX_OF_APP} {what}: use one for a wildcard")
    orgs = {each: org_of(reader, each) for each in {*apps, app}}
    used = Occupancy(CERTIFICATES_SHARE)
    for each in apps:
        used.enter(orgs[each])
    if not used.fits(orgs[app]):
        mine = used.counts.get(orgs[app], 0)
        raise Unprocessable(
            f"this node keeps at most {CERTIFICATES_SHARE.total} {what}, the last of them for organizations with fewer"
            f" than others: it has {used.total}, {mine} of this organization; remove some, or use one for a wildcard"
        )

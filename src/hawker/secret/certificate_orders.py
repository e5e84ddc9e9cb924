"""Certificates that the node orders itself: which host names they are wished for, when each is due, and who orders
them. Orders are in the store, so a daemon that comes back goes on with them.
"""

from collections.abc import Callable
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING

import anyio
import msgspec

from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import HawkerError, NotFound, NotServed, Unavailable, Unprocessable
from hawker.fair.table import CERTIFICATES as CERTIFICATES_SHARE
from hawker.fair.threads import Pool, in_thread
from hawker.feed import DNS_01, HTTP_01, TLS_ALPN_01, ShownChallenge
from hawker.ids import AppName, NodeId
from hawker.log import bind
from hawker.record.app import APPS, CERTIFICATE_ORDERS, CERTIFICATES, CertificateOrder, CertificateRecord
from hawker.secret.certificates import PLATFORM, Certificates, FarCertificate, check_room, check_share
from hawker.settings import Settings
from hawker.store.contract import Reader, Store, Tx
from hawker.token_bucket import Allowance, TokenBuckets

if TYPE_CHECKING:
    from hawker.secret import acme_order, certificate_chain
else:
    acme_order = deferred("hawker.secret.acme_order")
    certificate_chain = deferred("hawker.secret.certificate_chain")

_LOOK_EVERY_S = 1.0
SPREAD_S, _FLEET_SPREAD_S, _AGENT_SPREAD_S = 1.0, 3.0, 4.0
_DONE_S, _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 90.0, 0.1, 1.0
"""The seconds that an authority has to look and to issue. It is asked how far it is after a tenth of a second, then
after pauses that double up to a second; none is shorter than its Retry-After."""
_FIRST_TRIES = 2
AGAIN_S, _AGAIN_AT_MOST_S = 240.0, 86_400.0
"""The seconds before an order is tried again after the first failure; twice as long after each further one. Public
authorities bear five failed proofs an hour: two at once, then one after 4, 12 and 28 minutes."""
RENEWAL_S = 6 * 3600.0
"""The seconds between two questions to the authority when it wants a certificate renewed."""
TRIES = Allowance(30 / 3600, 30)
"""The tries of one app a second: all apps share the node's account, and public authorities bear 300 orders of one in
three hours."""
_HEARD_S, _TURNS_S = 3.0, 20.0
"""The seconds for which a node of a fleet leaves a certificate of the platform's own that nobody has to the other
nodes: until it has heard what they have, and a part of the second time that is its own."""
_log = bind("hawker.certificates")


def spread_of(settings: Settings, *, in_fleet: bool) -> float:
    """The seconds that the edge, or the edges and name servers of a fleet, have to hear of a challenge before the
    authority is sent to them. A catalog that is an agent tells of changes later."""
    if not in_fleet:
        return SPREAD_S
    return _FLEET_SPREAD_S if settings.catalog_url is None else _AGENT_SPREAD_S


class CertificateOrders:
    """The orders of certificates in the store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock

    def list(self, app: str) -> list[CertificateOrder]:
        """The orders of `app`, by host name."""
        return [order for _, order in self._store.scan(CERTIFICATE_ORDERS) if order.app == app]

    def find(self, app: str, hostname: str) -> CertificateOrder | None:
        order = self._store.get(CERTIFICATE_ORDERS, hostname)
        return order if order is not None and order.app == app else None

    async def put(
        self, app: str, text: str, certificates: Certificates | None = None, *, owned: bool = True
    ) -> CertificateOrder:
        """Put an order for a certificate, durable when this returns; the certificate comes later, and not before the
        order is put as `owned`. Once more, it is tried at once, but not before the order's `limited_until`. Raises
        `NotServed` on a node that knows no authority, `Unprocessable` for what cannot be ordered or is another
        app's."""
        if self._settings.acme_directory is None:
            raise NotServed(
                "this node orders no certificates: it has no --acme-directory; `hawker certs import` imports one"
            )
        hostname = certificate_chain.hostname_of(text)
        if "." not in hostname or (hostname.startswith("*") and not self._settings.answers_zone):
            why = "this node answers no zone of its own (dns_zone_listen)" if "." in hostname else "it is no domain's"
            raise Unprocessable(f"hostname: {hostname} cannot be ordered, {why}: import a certificate for it")
        if certificates is not None:
            certificates.check_claim(app, hostname)
        order = CertificateOrder(hostname=hostname, app=AppName(app), created_at=self._clock.now(), owned=owned)

        def apply(tx: Tx) -> CertificateOrder:
            if app != PLATFORM and tx.get(APPS, app) is None:
                raise NotFound("app not found")
            there, certificate = tx.get(CERTIFICATE_ORDERS, hostname), tx.get(CERTIFICATES, hostname)
            if there is not None and not there.owned and there.app != app:
                if not owned:
                    raise Unprocessable(f"hostname: another app asks for {hostname}, too: show first that it is yours")
                there = None
            for each in (there, certificate):
                if each is not None and each.app != app:
                    whose = f"the app {each.app}'s: remove it there" if app == PLATFORM else "another app's"
                    raise Unprocessable(f"hostname: {hostname} is {whose}")
            if there is None:
                _check_orders(tx, app)
            if certificate is None:
                check_room(tx, app)
            kept = order
            if there is not None:
                kept = msgspec.structs.replace(there, failures=0, failed_at=0.0, reason="", owned=owned or there.owned)
            tx.put(CERTIFICATE_ORDERS, hostname, kept)
            return kept

        if certificates is None or not owned:
            return await self._store.write(apply)
        async with certificates.claiming(app, hostname):
            return await self._store.write(apply)

    async def delete(self, app: str, hostname: str) -> bool:
        """Deletes an order and returns whether there was one. The certificate that came of it stays."""

        def apply(tx: Tx) -> bool:
            order = tx.get(CERTIFICATE_ORDERS, hostname)
            if order is None or order.app != app:
                return False
            tx.delete(CERTIFICATE_ORDERS, hostname)
            return True

        return await self._store.write(apply)


class PlatformTurns:
    """The turns of a fleet's nodes to order a certificate of the platform's own. All have its order and show what one
    of them has, and public authorities issue five equal certificates a week, so one node orders it and renews it; the
    others do where that one did not in the first half of its time for it, each at a moment of its own."""

    def __init__(self, certificates: Certificates, clock: Clock, me: NodeId) -> None:
        self._certificates = certificates
        self._clock = clock
        self._part = int.from_bytes(blake2b(me.encode(), digest_size=4).digest()) / 2**32
        self._missed_at: dict[str, float] = {}

    def is_mine(self, order: CertificateOrder) -> bool:
        """Whether a certificate of the platform's own that is due, by this node's own certificates, is ordered here and
        now."""
        latest = self._certificates.shown(order.hostname)
        if latest is None or latest.app != order.app:
            now = self._clock.monotonic()
            return now >= self._missed_at.setdefault(order.hostname, now) + self._wait_s(order.hostname)
        self._missed_at.pop(order.hostname, None)
        if not isinstance(latest, FarCertificate):
            return True
        life_s = latest.not_after - latest.updated_at
        return self._clock.now() >= latest.not_after - life_s / 6 * (1 - self._part / 2)

    def _wait_s(self, hostname: str) -> float:
        """As long again as an order takes at most where another node is about it."""
        has_others = len(self._certificates.keepers(hostname)) > 1
        is_begun = any(each.hostname == hostname for each in self._certificates.shown_challenges)
        return _HEARD_S + has_others * self._part * _TURNS_S + is_begun * _DONE_S


class CertificateBuyer:
    """Orders what is due, one after the other. Apps take turns, and each has so many tries an hour: an app with
    hundreds of names puts those of another one off by a single try. A node that is alone has no `turns`."""

    def __init__(
        self,
        store: Store,
        certificates: Certificates,
        settings: Settings,
        clock: Clock,
        spread_s: float = SPREAD_S,
        turns: PlatformTurns | None = None,
    ) -> None:
        self._store = store
        self._certificates = certificates
        self._settings = settings
        self._clock = clock
        self._spread_s = spread_s
        self._turns = turns
        self._tries = TokenBuckets(TRIES)
        self._turn: dict[AppName, float] = {}  # when each app had its last
        self._renewal_asked: dict[str, float] = {}
        self._news = anyio.Event()
        self._own_at = -inf  # before this moment nobody looks whether the platform's own order is there

    async def serve(self) -> None:
        """Orders and renews certificates, until cancelled. The settings name an authority."""
        directory = self._settings.acme_directory
        assert directory is not None
        while True:
            self._news = anyio.Event()
            await self._order_own()
            order = self.next()
            if order is None:
                await self.ask_renewal(directory)
                with anyio.move_on_after(_LOOK_EVERY_S):
                    await self._news.wait()
            else:
                await self._try(directory, order)

    def note(self, bucket: str, key: str) -> None:
        """The store has changed there."""
        if bucket == CERTIFICATE_ORDERS.name:
            self._news.set()

    async def _order_own(self) -> None:
        """The platform's own certificates. What refuses one (an app has the name, there is no room) may go: it is put
        again later, and the doctor says it until then."""
        now = self._clock.monotonic()
        if now < self._own_at:
            return
        self._own_at = now + AGAIN_S
        orders = CertificateOrders(self._store, self._settings, self._clock)
        for hostname in self._settings.own_hostnames:
            try:
                if orders.find(PLATFORM, hostname) is None:
                    await orders.put(PLATFORM, hostname)
            except HawkerError as error:
                extra = {"hostname": hostname, "reason": str(error)}
                _log.warning("a certificate of the platform's own is not ordered", extra=extra)
                self._certificates.refused_orders[hostname] = str(error)
            else:
                self._certificates.refused_orders.pop(hostname, None)

    def next(self) -> CertificateOrder | None:
        """The order that is tried now: of the app whose turn was longest ago the one that failed least."""
        now = self._clock.monotonic()
        due = [order for order in _all_due(self._store, self._clock.now()) if self._is_mine(order)]
        self._turn = {app: at for app, at in self._turn.items() if any(order.app == app for order in due)}
        due.sort(key=lambda order: self._turn.get(order.app, float("-inf")))
        for app in dict.fromkeys(order.app for order in due):
            if self._tries.take(app.encode(), now):
                self._turn[app] = now
                return next(order for order in due if order.app == app)
        return None

    def _is_mine(self, order: CertificateOrder) -> bool:
        return order.app != PLATFORM or self._turns is None or self._turns.is_mine(order)

    async def _try(self, directory: str, order: CertificateOrder) -> None:
        try:
            proof, issued = await self._issued(directory, order)
            await self._certificates.put(order.app, order.hostname, issued.chain, issued.key, ordered=True)
        except HawkerError as error:
            _log.warning("no certificate", extra={"hostname": order.hostname, "reason": str(error)})
            wait_s = error.wait_s if isinstance(error, acme_order.RateLimitedError) else 0.0
            await self._note(order, failed=str(error), wait_s=wait_s)
        else:
            _log.info("certificate issued", extra={"hostname": order.hostname, "app": order.app, "proof": proof})
            await self._note(order, proof=proof)

    async def _issued(self, directory: str, order: CertificateOrder) -> "tuple[str, acme_order.Issued]":
        """With the kind of proof that the authority took. The first time two kinds are tried, later one."""
        kinds, said = proofs_for(order), list[str]()
        for turn in range(1, _FIRST_TRIES + 1):
            shown: ShownChallenge | None = None
            try:
                at_authority = await in_thread(Pool.NAMES, self._at_authority, directory, order)
                shown = await in_thread(Pool.NAMES, at_authority.begin, kinds)
                if shown is None:
                    return order.proof, await self._finished(at_authority)
                return shown.kind, await self._shown(shown, at_authority)
            except acme_order.NotShownError as error:
                said.append(f"{shown.kind if shown else 'proof'}: {error}")
                kinds = tuple(kind for kind in kinds if shown is None or kind != shown.kind)
                if order.failures or turn == _FIRST_TRIES or not kinds:
                    raise Unavailable("; ".join(said)) from error
        raise AssertionError("the last turn returns or raises")

    async def _shown(self, shown: ShownChallenge, at_authority: "acme_order.AcmeOrder") -> "acme_order.Issued":
        self._certificates.challenge(shown)
        try:
            await self._clock.sleep(self._spread_s)
            return await self._finished(at_authority)
        finally:
            self._certificates.unchallenge(shown)

    async def _finished(self, at_authority: "acme_order.AcmeOrder") -> "acme_order.Issued":
        await in_thread(Pool.NAMES, at_authority.prove)
        until, pause_s, wish_s = self._clock.monotonic() + _DONE_S, _FIRST_PAUSE_S, 0.0
        while (left_s := until - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(max(pause_s, wish_s), left_s))
            found = await in_thread(Pool.NAMES, at_authority.look)
            if not isinstance(found, float):
                return found
            pause_s, wish_s = min(2 * pause_s, _LONGEST_PAUSE_S), found
        raise Unavailable(f"the certificate authority was not done after {_DONE_S:.0f} s")

    def _at_authority(self, directory: str, order: CertificateOrder) -> "acme_order.AcmeOrder":
        """In a thread: its library takes a while to be imported."""
        return acme_order.AcmeOrder(self._authority(directory), order.hostname, order.app)

    def _authority(self, directory: str) -> "acme_order.Authority":
        return acme_order.Authority(
            directory=directory,
            email=self._settings.acme_email,
            ca_file=self._settings.acme_ca_file,
            key=self._certificates.account_key,
            binding_file=self._settings.acme_binding_file,
        )

    async def ask_renewal(self, directory: str) -> None:
        """Asks when the authority wants a certificate renewed that it was not asked about for long: one at a time."""
        now = self._clock.monotonic()
        for _, order in self._store.scan(CERTIFICATE_ORDERS):
            there = self._certificates.find(order.app, order.hostname)
            if there is None or not there.ordered or now < self._renewal_asked.get(order.hostname, -inf) + RENEWAL_S:
                continue
            if len(self._renewal_asked) > CERTIFICATES_SHARE.total:
                self._renewal_asked.clear()
            self._renewal_asked[order.hostname] = now
            try:
                chain = self._certificates.chain(there)
                at = await in_thread(Pool.NAMES, self._renewal_time, directory, chain)
            except HawkerError as error:
                _log.info("when to renew is not known", extra={"hostname": order.hostname, "reason": str(error)})
            else:
                await self._note_renewal(order, at or 0.0)
            return

    async def _note_renewal(self, asked: CertificateOrder, at: float) -> None:
        await self._change(asked, lambda order: msgspec.structs.replace(order, renew_at=at))

    def _renewal_time(self, directory: str, chain: str) -> float | None:
        return acme_order.renewal_time(self._authority(directory), chain)

    async def _note(self, tried: CertificateOrder, *, failed: str = "", wait_s: float = 0.0, proof: str = "") -> None:
        now = self._clock.now()

        def noted(order: CertificateOrder) -> CertificateOrder:
            if not failed:
                proved = proof or order.proof
                return msgspec.structs.replace(
                    order, failures=0, failed_at=0.0, reason="", proof=proved, limited_until=0.0, renew_at=0.0
                )
            limited = now + wait_s if wait_s else 0.0
            return msgspec.structs.replace(
                order, failures=order.failures + 1, failed_at=now, reason=failed, limited_until=limited
            )

        await self._change(tried, noted)

    async def _change(self, tried: CertificateOrder, changed: Callable[[CertificateOrder], CertificateOrder]) -> None:
        def apply(tx: Tx) -> None:
            order = tx.get(CERTIFICATE_ORDERS, tried.hostname)
            if order is not None and order.app == tried.app:
                tx.put(CERTIFICATE_ORDERS, tried.hostname, changed(order))

        await self._store.write(apply)


def proofs_for(order: CertificateOrder) -> tuple[str, ...]:
    """The kinds of proof to try, the first one first: what was met before, after failures by turns. Only who answers
    for a whole zone proves a wildcard."""
    if order.hostname.startswith("*"):
        return (DNS_01,)
    kinds = sorted((TLS_ALPN_01, HTTP_01), key=lambda kind: kind != order.proof)
    first = order.failures % len(kinds)
    return (*kinds[first:], *kinds[:first])


def is_due(order: CertificateOrder, there: CertificateRecord | None, now: float) -> bool:
    """Whether a certificate is ordered now. A certificate that was ordered is renewed in the last third of its life, or
    sooner where the authority wants it; one that was imported is left alone until it has expired."""
    if now < order.limited_until or not order.owned:
        return False
    if order.failures and now < order.failed_at + min(AGAIN_S * 2.0 ** min(order.failures - 1, 16), _AGAIN_AT_MOST_S):
        return False
    if there is None or not there.ordered:
        return there is None or now >= there.not_after
    if order.renew_at and now >= order.renew_at > there.updated_at:
        return True
    return now >= there.not_after - (there.not_after - there.updated_at) / 3


def _all_due(store: Reader, now: float) -> list[CertificateOrder]:
    """Those that failed least come first."""
    orders = [order for _, order in store.scan(CERTIFICATE_ORDERS)]
    due = [order for order in orders if is_due(order, store.get(CERTIFICATES, order.hostname), now)]
    return sorted(due, key=lambda order: (order.failures, order.created_at))


def _check_orders(tx: Tx, app: str) -> None:
    check_share(tx, app, [order.app for _, order in tx.scan(CERTIFICATE_ORDERS)], "orders")

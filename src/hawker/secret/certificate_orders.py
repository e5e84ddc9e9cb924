"""Certificates that the node orders itself: which host names they are wished for, when each is due, and who orders
them. Orders are in the store, so a daemon that comes back goes on with them.
"""

from typing import TYPE_CHECKING

import msgspec

from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import HawkerError, NotFound, NotServed, Unprocessable
from hawker.fair.threads import Pool, in_thread
from hawker.feed import ShownChallenge
from hawker.ids import AppName
from hawker.log import bind
from hawker.record.app import APPS, CERTIFICATE_ORDERS, CERTIFICATES, CertificateOrder, CertificateRecord
from hawker.secret.certificates import Certificates, check_room
from hawker.settings import Settings
from hawker.store.contract import Reader, Store, Tx
from hawker.token_bucket import Allowance, TokenBuckets

if TYPE_CHECKING:
    from hawker.secret import acme_order, certificate_chain
else:
    acme_order = deferred("hawker.secret.acme_order")
    certificate_chain = deferred("hawker.secret.certificate_chain")

MAX_ORDERS_OF_APP, MAX_ORDERS = 500, 2000
_LOOK_EVERY_S = 1.0
_SPREAD_S = 1.0
"""So long has the edge to hear of a challenge before the authority is sent to it."""
_AGAIN_S, _AGAIN_AT_MOST_S = 120.0, 86_400.0
"""After the first failure; twice as long after each further one. Public authorities bear five failures an hour."""
TRIES = Allowance(30 / 3600, 30)
"""Of one app, a second: all apps share the node's account, and public authorities bear 300 orders of one in three
hours."""
_log = bind("hawker.certificates")


class CertificateOrders:
    """Those of the store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock

    def list(self, app: str) -> list[CertificateOrder]:
        """By host name."""
        return [order for _, order in self._store.scan(CERTIFICATE_ORDERS) if order.app == app]

    def find(self, app: str, hostname: str) -> CertificateOrder | None:
        order = self._store.get(CERTIFICATE_ORDERS, hostname)
        return order if order is not None and order.app == app else None

    async def put(self, app: str, text: str) -> CertificateOrder:
        """Durable when it returns; the certificate comes later. Once more, it is tried at once. Raises `NotServed` on a
        node that knows no authority, `Unprocessable` for what cannot be ordered or is another app's."""
        if self._settings.acme_directory is None:
            raise NotServed("this node orders no certificates: it has no acme_directory; import one instead")
        hostname = certificate_chain.hostname_of(text)
        if hostname.startswith("*") or "." not in hostname:
            raise Unprocessable(f"hostname: {hostname} cannot be ordered by HTTP-01: import a certificate for it")
        order = CertificateOrder(hostname=hostname, app=AppName(app), created_at=self._clock.now())

        def apply(tx: Tx) -> CertificateOrder:
            if tx.get(APPS, app) is None:
                raise NotFound("app not found")
            there, certificate = tx.get(CERTIFICATE_ORDERS, hostname), tx.get(CERTIFICATES, hostname)
            if any(each is not None and each.app != app for each in (there, certificate)):
                raise Unprocessable(f"hostname: {hostname} is another app's")
            if there is None:
                _check_orders(tx, app)
            if certificate is None:
                check_room(tx, app)
            kept = order if there is None else msgspec.structs.replace(order, created_at=there.created_at)
            tx.put(CERTIFICATE_ORDERS, hostname, kept)
            return kept

        return await self._store.write(apply)

    async def delete(self, app: str, hostname: str) -> bool:
        """Whether there was one. The certificate that came of it stays."""

        def apply(tx: Tx) -> bool:
            order = tx.get(CERTIFICATE_ORDERS, hostname)
            if order is None or order.app != app:
                return False
            tx.delete(CERTIFICATE_ORDERS, hostname)
            return True

        return await self._store.write(apply)


class CertificateBuyer:
    """Orders what is due, one after the other. Apps take turns, and each has so many tries an hour: an app with
    hundreds of names puts those of another one off by a single try."""

    def __init__(self, store: Store, certificates: Certificates, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._certificates = certificates
        self._settings = settings
        self._clock = clock
        self._tries = TokenBuckets(TRIES)
        self._turn: dict[AppName, float] = {}  # when each app had its last

    async def serve(self) -> None:
        """Until cancelled. The settings name an authority."""
        directory = self._settings.acme_directory
        assert directory is not None
        while True:
            order = self.next()
            if order is None:
                await self._clock.sleep(_LOOK_EVERY_S)
            else:
                await self._try(directory, order)

    def next(self) -> CertificateOrder | None:
        """Which order is tried now: of the app whose turn was longest ago the one that failed least."""
        now = self._clock.monotonic()
        due = _all_due(self._store, self._clock.now())
        self._turn = {app: at for app, at in self._turn.items() if any(order.app == app for order in due)}
        due.sort(key=lambda order: self._turn.get(order.app, float("-inf")))
        for app in dict.fromkeys(order.app for order in due):
            if self._tries.take(app.encode(), now):
                self._turn[app] = now
                return next(order for order in due if order.app == app)
        return None

    async def _try(self, directory: str, order: CertificateOrder) -> None:
        try:
            issued = await self._issued(directory, order)
            await self._certificates.put(order.app, order.hostname, issued.chain, issued.key, ordered=True)
        except HawkerError as error:
            _log.warning("no certificate", extra={"hostname": order.hostname, "reason": str(error)})
            await self._note(order, str(error))
        else:
            _log.info("certificate issued", extra={"hostname": order.hostname, "app": order.app})
            await self._note(order, "")

    async def _issued(self, directory: str, order: CertificateOrder) -> "acme_order.Issued":
        at_authority = await in_thread(Pool.NAMES, self._at_authority, directory, order.hostname)
        asked = await in_thread(Pool.NAMES, at_authority.begin)
        if asked is None:
            return await in_thread(Pool.NAMES, at_authority.finish)
        shown = ShownChallenge(hostname=order.hostname, token=asked[0], answer=asked[1], app=order.app)
        self._certificates.challenge(shown)
        try:
            await self._clock.sleep(_SPREAD_S)
            return await in_thread(Pool.NAMES, at_authority.finish)
        finally:
            self._certificates.unchallenge(shown)

    def _at_authority(self, directory: str, hostname: str) -> "acme_order.AcmeOrder":
        """In a thread: its library takes a while to be imported."""
        authority = acme_order.Authority(
            directory=directory,
            email=self._settings.acme_email,
            ca_file=self._settings.acme_ca_file,
            key=self._certificates.account_key,
        )
        return acme_order.AcmeOrder(authority, hostname)

    async def _note(self, tried: CertificateOrder, reason: str) -> None:
        now = self._clock.now()

        def apply(tx: Tx) -> None:
            order = tx.get(CERTIFICATE_ORDERS, tried.hostname)
            if order is not None and order.app == tried.app:
                failures = order.failures + 1 if reason else 0
                noted = msgspec.structs.replace(
                    order, failures=failures, failed_at=now if reason else 0.0, reason=reason
                )
                tx.put(CERTIFICATE_ORDERS, tried.hostname, noted)

        await self._store.write(apply)


def is_due(order: CertificateOrder, there: CertificateRecord | None, now: float) -> bool:
    """One that was ordered is renewed in the last third of its life; one that was imported is left alone until it has
    expired."""
    if order.failures and now < order.failed_at + min(_AGAIN_S * 2.0 ** min(order.failures - 1, 16), _AGAIN_AT_MOST_S):
        return False
    if there is None or not there.ordered:
        return there is None or now >= there.not_after
    return now >= there.not_after - (there.not_after - there.updated_at) / 3


def _all_due(store: Reader, now: float) -> list[CertificateOrder]:
    """Those that failed least come first."""
    orders = [order for _, order in store.scan(CERTIFICATE_ORDERS)]
    due = [order for order in orders if is_due(order, store.get(CERTIFICATES, order.hostname), now)]
    return sorted(due, key=lambda order: (order.failures, order.created_at))


def _check_orders(tx: Tx, app: str) -> None:
    orders = [order for _, order in tx.scan(CERTIFICATE_ORDERS)]
    if len(orders) >= MAX_ORDERS or sum(order.app == app for order in orders) >= MAX_ORDERS_OF_APP:
        raise Unprocessable(f"an app has at most {MAX_ORDERS_OF_APP} orders, and this node {MAX_ORDERS}")

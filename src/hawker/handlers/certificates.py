"""Answers about the certificates of apps' host names, and about the platform's own."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from ipaddress import ip_address
from typing import TYPE_CHECKING

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.certificate import (
    CERTIFICATES_IN_PAGE,
    CHECK_CERTIFICATE,
    DELETE_CERTIFICATE,
    DELETE_CUSTOM_CERTIFICATE,
    DELETE_ORDERED_CERTIFICATE,
    DELETE_PLATFORM_CERTIFICATE,
    GET_CERTIFICATE,
    IMPORT_CERTIFICATE,
    IMPORT_PLATFORM_CERTIFICATE,
    LIST_CERTIFICATES,
    LIST_PLATFORM_CERTIFICATES,
    MOST_IN_PAGE,
    ORDER_CERTIFICATE,
    AcmeChallenge,
    CertificateDetail,
    CertificateEntry,
    CertificateList,
    CertificateParams,
    CertificateSummary,
    CertificateValidation,
    DnsRecords,
    DnsRequirements,
    ImportCertificateRequest,
    IssuedCertificate,
    ListCertificatesQuery,
    OrderCertificateRequest,
    Ownership,
    PlatformCertificate,
    PlatformCertificateList,
    PlatformCertificateParams,
    ValidationError,
)
from hawker.api.handlers import Handlers
from hawker.api.paging import page_of
from hawker.api.route import Call, NoParams, NoQuery
from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import NotFound, Unprocessable
from hawker.feed import DNS_01, HTTP_01, TLS_ALPN_01
from hawker.record.app import AppRecord, CertificateOrder, CertificateRecord
from hawker.secret.certificates import PLATFORM, Certificates, FarCertificate, is_below, proof_name
from hawker.secret.ownership import NameLookup, OwnershipProof, check_ownership, says_so
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.value_object import ValueObject
from hawker.worker.apps import AppTable
from hawker.worker.ip_assignments import IpAllocator, IpType

if TYPE_CHECKING:
    from hawker.secret import certificate_chain, certificate_orders
    from hawker.secret.certificate_orders import CertificateOrders
else:
    certificate_chain = deferred("hawker.secret.certificate_chain")
    certificate_orders = deferred("hawker.secret.certificate_orders")

_ACTIVE, _PENDING, _PENDING_OWNERSHIP = "active", "pending_validation", "pending_ownership"
_PUBLIC = frozenset({IpType.V4, IpType.V6, IpType.SHARED_V4})
_ALONE = frozenset({IpType.V4, IpType.V6})
_REQUIRED = "required"


class CertificateHandlers:
    """`lookup` asks the host's name servers."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        apps: AppTable,
        ips: IpAllocator,
        certificates: Certificates,
        settings: Settings,
        lookup: NameLookup,
    ) -> None:
        self._store = store
        self._clock = clock
        self._apps = apps
        self._ips = ips
        self._certificates = certificates
        self._settings = settings
        self._lookup = lookup

    @cached_property
    def _orders(self) -> "CertificateOrders":
        return certificate_orders.CertificateOrders(self._store, self._settings, self._clock)

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_CERTIFICATES, self.list)
        handlers.on(ORDER_CERTIFICATE, self.order)
        handlers.on(IMPORT_CERTIFICATE, self.put)
        handlers.on(GET_CERTIFICATE, self.get)
        handlers.on(CHECK_CERTIFICATE, self.check)
        handlers.on(DELETE_CERTIFICATE, self.delete)
        handlers.on(DELETE_CUSTOM_CERTIFICATE, self.delete_custom)
        handlers.on(DELETE_ORDERED_CERTIFICATE, self.delete_ordered)

    async def list(self, call: Call[AppParams, ListCertificatesQuery, None]) -> CertificateList:
        app = self._apps.get(self._store, call.params.app_name)
        wanted = (call.query.filter or "").lower()
        ordered = {order.hostname for order in self._orders.list(app.name)}
        names = ordered | {record.hostname for record in self._certificates.list(app.name)}
        found = sorted(name for name in names if wanted in name)
        limit = CERTIFICATES_IN_PAGE if call.query.limit is None else call.query.limit
        page = page_of(found, str, limit, call.query.cursor, most=MOST_IN_PAGE)
        return CertificateList(
            certificates=tuple(self._summary(self._kept(app, name)) for name in page.items),
            total_count=len(found),
            next_cursor=page.next_cursor or "",
        )

    async def order(self, call: Call[AppParams, NoQuery, OrderCertificateRequest]) -> CertificateDetail:
        app = self._apps.get(self._store, call.params.app_name)
        try:
            await self._check_ownership(app, call.body.hostname)
        except Unprocessable:
            owned = False
        else:
            owned = True
        order = await self._orders.put(app.name, call.body.hostname, self._certificates, owned=owned)
        return self._detail(app, self._kept(app, order.hostname))

    async def put(self, call: Call[AppParams, NoQuery, ImportCertificateRequest]) -> CertificateDetail:
        app, body = self._apps.get(self._store, call.params.app_name), call.body
        await self._check_ownership(app, body.hostname)
        record = await self._certificates.put(app.name, body.hostname, body.fullchain, body.private_key)
        return self._detail(app, self._kept(app, record.hostname))

    async def get(self, call: Call[CertificateParams, NoQuery, None]) -> CertificateDetail:
        return self._detail(*self._found(call.params))

    async def check(self, call: Call[CertificateParams, NoQuery, None]) -> CertificateDetail:
        """An order of a name that is shown to be the app's since then goes ahead."""
        app, kept = self._found(call.params)
        if kept.order is not None and not kept.order.owned:
            with suppress(Unprocessable):
                await self._check_ownership(app, kept.hostname)
                await self._orders.put(app.name, kept.hostname, self._certificates)
                kept = self._kept(app, kept.hostname)
        addresses = await self._lookup.addresses(kept.hostname.replace("*", "check", 1))
        owned = await says_so(self._proof(app, kept.hostname), self._lookup)
        wanted = {ip.ip for ip in self._ips.list(app.name) if ip.type in _PUBLIC}
        right = bool(wanted.intersection(addresses) if wanted else addresses)
        if kept.record is not None:
            await self._certificates.note_check(app.name, kept.hostname, points_here=right)
        return self._detail(app, self._kept(app, kept.hostname), _Check(right, owned, _records(addresses)))

    async def delete(self, call: Call[CertificateParams, NoQuery, None]) -> None:
        app, kept = self._found(call.params)
        await self._orders.delete(app.name, kept.hostname)
        if kept.record is not None:
            await self._certificates.delete(app.name, kept.hostname)
        else:
            await self._certificates.release(app.name, kept.hostname)

    async def delete_custom(self, call: Call[CertificateParams, NoQuery, None]) -> CertificateDetail:
        app, kept = self._found(call.params)
        if kept.record is None or kept.record.ordered:
            raise NotFound(f"no certificate was imported for {kept.hostname}")
        await self._certificates.delete(app.name, kept.hostname)
        return self._detail(app, _Kept(kept.hostname, None, kept.order), gone=_gone(kept.hostname))

    async def delete_ordered(self, call: Call[CertificateParams, NoQuery, None]) -> CertificateDetail:
        """Deletes a certificate that was ordered, and its order. A certificate that was imported stays."""
        app, kept = self._found(call.params)
        await self._orders.delete(app.name, kept.hostname)
        if kept.record is not None and not kept.record.ordered:
            return self._detail(app, _Kept(kept.hostname, kept.record, None))
        if kept.record is not None:
            await self._certificates.delete(app.name, kept.hostname)
        else:
            await self._certificates.release(app.name, kept.hostname)
        return self._detail(app, _Kept(kept.hostname, None, None), gone=_gone(kept.hostname))

    async def _check_ownership(self, app: AppRecord, text: str) -> None:
        """Of a name that the app does not have yet. Below the platform's domain names are given by their apps' own."""
        if self._settings.cert_ownership != _REQUIRED:
            return
        hostname, domain = certificate_chain.hostname_of(text), self._settings.domain
        if self._kept(app, hostname).is_owned or (domain is not None and is_below(hostname, domain)):
            return
        await check_ownership(self._proof(app, hostname), self._lookup)

    def _proof(self, app: AppRecord, hostname: str) -> OwnershipProof:
        delegation = self._delegation(app, hostname)
        return OwnershipProof(
            hostname=hostname,
            app_value=f"app-{app.id[:10]}",
            org_value=f"org-{app.org}",
            challenge=(delegation.name, delegation.target),
            addresses=frozenset(ip.ip for ip in self._ips.list(app.name) if ip.type in _ALONE),
        )

    def _found(self, params: CertificateParams) -> tuple[AppRecord, "_Kept"]:
        app = self._apps.get(self._store, params.app_name)
        order = self._orders.find(app.name, params.hostname)
        if order is not None:
            return app, self._kept(app, order.hostname)
        return app, self._kept(app, self._certificates.get(app.name, params.hostname).hostname)

    def _kept(self, app: AppRecord, hostname: str) -> "_Kept":
        return _Kept(hostname, self._certificates.find(app.name, hostname), self._orders.find(app.name, hostname))

    def _status(self, kept: "_Kept") -> str:
        if kept.record is not None and self._clock.now() < kept.record.not_after:
            return _ACTIVE
        return _PENDING if kept.is_owned else _PENDING_OWNERSHIP

    def _summary(self, kept: "_Kept") -> CertificateSummary:
        status, record = self._status(kept), kept.record
        ordered = record is not None and record.ordered
        return CertificateSummary(
            hostname=kept.hostname,
            status=status,
            configured=status == _ACTIVE and kept.points_here,
            acme_requested=kept.order is not None,
            acme_alpn_configured=ordered and kept.proof == TLS_ALPN_01,
            acme_dns_configured=ordered and kept.proof == DNS_01,
            acme_http_configured=ordered and kept.proof == HTTP_01,
            has_custom_certificate=record is not None and not ordered,
            has_fly_certificate=ordered,
            ownership_txt_configured=False,
            created_at=instant(kept.created_at),
            updated_at=instant(kept.created_at if record is None else record.updated_at),
        )

    def _detail(
        self, app: AppRecord, kept: "_Kept", found: "_Check | None" = None, gone: str = ""
    ) -> CertificateDetail:
        """`found` is what a check found now."""
        status, record = self._status(kept), kept.record
        points_here = kept.points_here if found is None else found.points_here
        return CertificateDetail(
            hostname=kept.hostname,
            status=status,
            configured=status == _ACTIVE and points_here,
            acme_requested=kept.order is not None,
            certificates=() if record is None else (_entry(record, status),),
            dns_requirements=self._requirements(app, kept.hostname),
            validation=CertificateValidation(
                dns_configured=points_here,
                alpn_configured=kept.proof == TLS_ALPN_01,
                http_configured=kept.proof == HTTP_01,
                ownership_txt_configured=found is not None and found.owned,
            ),
            validation_errors=() if gone else tuple(self._errors(app, kept, found)),
            dns_records=None if found is None else found.records,
            rate_limited_until=self._limited_until(kept),
            warning=gone,
        )

    def _limited_until(self, kept: "_Kept") -> datetime | None:
        until = kept.order.limited_until if kept.order is not None else 0.0
        return instant(until) if until > self._clock.now() else None

    def _errors(self, app: AppRecord, kept: "_Kept", found: "_Check | None") -> Sequence[ValidationError]:
        errors, now = [], self._clock.now()
        if kept.record is not None and now >= kept.record.not_after:
            errors.append(("expired", "the certificate has expired", "import a new one", now))
        if not kept.is_owned:
            proof = self._proof(app, kept.hostname)
            remedy = f"set the TXT record {proof.text_name} to {proof.app_value} or {proof.org_value}, and check again"
            errors.append(("ownership", "nothing shows that the name is this app's", remedy, now))
        if kept.order is not None and kept.order.reason:
            remedy = "have the name lead to this host, to its port 443 with TLS or its port 80 with plain HTTP"
            errors.append(("acme", kept.order.reason, remedy, kept.order.failed_at))
        if found is not None and not found.points_here:
            where = ", ".join(found.records.resolved_addresses) or "nowhere"
            errors.append(
                ("dns", f"the name leads to {where}", "point it to an address of the app, or of its host", now)
            )
        return [
            ValidationError(code=code, message=message, remediation=remedy, timestamp=instant(at))
            for code, message, remedy, at in errors
        ]

    def _delegation(self, app: AppRecord, hostname: str) -> AcmeChallenge:
        """The CNAME by which who has a domain lets this app have certificates for it. None is needed below our own."""
        domain, base = self._settings.domain, hostname.removeprefix("*.")
        if domain is None or not self._settings.answers_zone or is_below(base, domain):
            return AcmeChallenge()
        return AcmeChallenge(name=f"_acme-challenge.{base}", target=proof_name(domain, app.name, base))

    def _requirements(self, app: AppRecord, hostname: str) -> DnsRequirements:
        ips, proof = self._ips.list(app.name), self._proof(app, hostname)
        return DnsRequirements(
            a=tuple(ip.ip for ip in ips if ip.type in (IpType.V4, IpType.SHARED_V4)),
            aaaa=tuple(ip.ip for ip in ips if ip.type == IpType.V6),
            acme_challenge=self._delegation(app, hostname),
            cname=f"{app.name}.{self._settings.domain}" if self._settings.domain is not None else "",
            ownership=Ownership(name=proof.text_name, app_value=proof.app_value, org_value=proof.org_value),
        )


class PlatformCertificateHandlers:
    def __init__(self, clock: Clock, certificates: Certificates) -> None:
        self._clock = clock
        self._certificates = certificates

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_PLATFORM_CERTIFICATES, self.list)
        handlers.on(IMPORT_PLATFORM_CERTIFICATE, self.put)
        handlers.on(DELETE_PLATFORM_CERTIFICATE, self.delete)

    async def list(self, call: Call[NoParams, NoQuery, None]) -> PlatformCertificateList:
        return PlatformCertificateList(certificates=tuple(map(self._info, self._certificates.platform_hostnames)))

    async def put(self, call: Call[NoParams, NoQuery, ImportCertificateRequest]) -> PlatformCertificate:
        hostname, names = certificate_chain.hostname_of(call.body.hostname), self._certificates.platform_hostnames
        if hostname not in names:
            own = f"which are {' and '.join(names)}" if names else "of which it has none: see --domain, --api-hostname"
            raise Unprocessable(f"hostname: {hostname} is none of this node's own names, {own}")
        await self._certificates.put(PLATFORM, hostname, call.body.fullchain, call.body.private_key)
        return self._info(hostname)

    async def delete(self, call: Call[PlatformCertificateParams, NoQuery, None]) -> PlatformCertificate:
        hostname = certificate_chain.hostname_of(call.params.hostname)
        record = self._certificates.find(PLATFORM, hostname)
        if record is None or record.ordered:
            elsewhere = isinstance(self._certificates.shown(hostname), FarCertificate)
            where = "another node has one: ask that" if elsewhere else "see `hawker node certs list`"
            raise NotFound(f"no certificate was imported here for {hostname!r:.300}; {where}")
        await self._certificates.delete(PLATFORM, hostname)
        return self._info(hostname)

    def _info(self, hostname: str) -> PlatformCertificate:
        shown, error = self._certificates.shown(hostname), self._certificates.refusal(hostname)
        if shown is None or shown.app != PLATFORM:
            status = "covered" if self._certificates.covers(hostname) else "missing"
            return PlatformCertificate(hostname=hostname, status=status, error=error)
        info = PlatformCertificate(
            hostname=hostname,
            status=_ACTIVE if self._clock.now() < shown.not_after else "expired",
            source="elsewhere",
            expires_at=instant(shown.not_after),
            error=error,
        )
        if isinstance(shown, FarCertificate):
            return info
        source = "ordered" if shown.ordered else "imported"
        return msgspec.structs.replace(info, source=source, issuer=shown.authority)


class _Check(ValueObject, frozen=True):
    """What the name servers say now: whether the name leads to the app, whether its zone says that it is the app's."""

    points_here: bool
    owned: bool
    records: DnsRecords


class _Kept(ValueObject, frozen=True):
    """What there is of a host name: a certificate, the wish that one is ordered, or both."""

    hostname: str
    record: CertificateRecord | None
    order: CertificateOrder | None

    @property
    def is_owned(self) -> bool:
        """The app has the name, whatever shows that it is the app's now."""
        return self.record is not None or (self.order is not None and self.order.owned)

    @property
    def points_here(self) -> bool:
        return self.record is not None and self.record.points_here

    @property
    def proof(self) -> str:
        """The kind of challenge that was met last; before that was noted, it was HTTP-01."""
        proved = self.order.proof if self.order is not None else ""
        return proved or (HTTP_01 if self.record is not None and self.record.ordered else "")

    @property
    def created_at(self) -> float:
        return min(each.created_at for each in (self.record, self.order) if each is not None)


def _gone(hostname: str) -> str:
    return f"{hostname} has no certificate any more: nothing is served under it with TLS"


def _entry(record: CertificateRecord, status: str) -> CertificateEntry:
    expires_at = instant(record.not_after)
    return CertificateEntry(
        source="fly" if record.ordered else "custom",
        status=status,
        issuer=record.authority,
        created_at=instant(record.updated_at),
        expires_at=expires_at,
        issued=(IssuedCertificate(type=record.kind, certificate_authority=record.authority, expires_at=expires_at),),
    )


def _records(addresses: tuple[str, ...]) -> DnsRecords:
    by_version = {
        version: tuple(each for each in addresses if ip_address(each).version == version) for version in (4, 6)
    }
    return DnsRecords(a=by_version[4], aaaa=by_version[6], resolved_addresses=addresses)

"""Answers about the certificates of apps' host names."""

from collections.abc import Sequence
from ipaddress import ip_address

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.certificate import (
    CERTIFICATES_IN_PAGE,
    CHECK_CERTIFICATE,
    DELETE_CERTIFICATE,
    DELETE_CUSTOM_CERTIFICATE,
    DELETE_ORDERED_CERTIFICATE,
    GET_CERTIFICATE,
    IMPORT_CERTIFICATE,
    LIST_CERTIFICATES,
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
    ValidationError,
)
from hawker.api.handlers import Handlers
from hawker.api.paging import page_of
from hawker.api.route import Call, NoQuery
from hawker.clock import Clock
from hawker.errors import NotServed
from hawker.record.app import AppRecord, CertificateRecord
from hawker.secret.certificates import Certificates
from hawker.store.contract import Store
from hawker.worker.apps import AppTable
from hawker.worker.assembly import Lookup
from hawker.worker.ip_assignments import IpAllocator, IpType

_ACTIVE, _PENDING = "active", "pending_validation"
_PUBLIC = frozenset({IpType.V4, IpType.V6, IpType.SHARED_V4})


class CertificateHandlers:
    """`lookup` asks the host's name servers."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        apps: AppTable,
        ips: IpAllocator,
        certificates: Certificates,
        lookup: Lookup,
    ) -> None:
        self._store = store
        self._clock = clock
        self._apps = apps
        self._ips = ips
        self._certificates = certificates
        self._lookup = lookup

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
        found = [record for record in self._certificates.list(app.name) if wanted in record.hostname]
        limit = CERTIFICATES_IN_PAGE if call.query.limit is None else call.query.limit
        page = page_of(found, lambda record: record.hostname, limit, call.query.cursor, most=MOST_IN_PAGE)
        return CertificateList(
            certificates=tuple(map(self._summary, page.items)),
            total_count=len(found),
            next_cursor=page.next_cursor or "",
        )

    async def order(self, call: Call[AppParams, NoQuery, OrderCertificateRequest]) -> CertificateDetail:
        self._apps.get(self._store, call.params.app_name)
        raise NotServed("ordering certificates is not served by this node yet: import one that was issued elsewhere")

    async def put(self, call: Call[AppParams, NoQuery, ImportCertificateRequest]) -> CertificateDetail:
        app, body = self._apps.get(self._store, call.params.app_name), call.body
        record = await self._certificates.put(app.name, body.hostname, body.fullchain, body.private_key)
        return self._detail(app, record)

    async def get(self, call: Call[CertificateParams, NoQuery, None]) -> CertificateDetail:
        return self._detail(*self._found(call.params))

    async def check(self, call: Call[CertificateParams, NoQuery, None]) -> CertificateDetail:
        app, record = self._found(call.params)
        addresses = await self._lookup(record.hostname.replace("*", "check", 1))
        wanted = {ip.ip for ip in self._ips.list(app.name) if ip.type in _PUBLIC}
        right = bool(wanted.intersection(addresses) if wanted else addresses)
        record = await self._certificates.note_check(app.name, record.hostname, points_here=right)
        return self._detail(app, record, _records(addresses))

    async def delete(self, call: Call[CertificateParams, NoQuery, None]) -> None:
        app, record = self._found(call.params)
        await self._certificates.delete(app.name, record.hostname)

    async def delete_custom(self, call: Call[CertificateParams, NoQuery, None]) -> CertificateDetail:
        app, record = self._found(call.params)
        await self._certificates.delete(app.name, record.hostname)
        warning = f"{record.hostname} has no certificate any more: nothing is served under it with TLS"
        return self._detail(app, record, gone=warning)

    async def delete_ordered(self, call: Call[CertificateParams, NoQuery, None]) -> CertificateDetail:
        """None is ever ordered, so none is there to be removed."""
        return self._detail(*self._found(call.params))

    def _found(self, params: CertificateParams) -> tuple[AppRecord, CertificateRecord]:
        app = self._apps.get(self._store, params.app_name)
        return app, self._certificates.get(app.name, params.hostname)

    def _status(self, record: CertificateRecord) -> str:
        return _ACTIVE if self._clock.now() < record.not_after else _PENDING

    def _summary(self, record: CertificateRecord) -> CertificateSummary:
        status = self._status(record)
        return CertificateSummary(
            hostname=record.hostname,
            status=status,
            configured=status == _ACTIVE and record.points_here,
            acme_requested=False,
            acme_alpn_configured=False,
            acme_dns_configured=False,
            acme_http_configured=False,
            has_custom_certificate=True,
            has_fly_certificate=False,
            ownership_txt_configured=False,
            created_at=instant(record.created_at),
            updated_at=instant(record.updated_at),
        )

    def _detail(
        self, app: AppRecord, record: CertificateRecord, records: DnsRecords | None = None, gone: str = ""
    ) -> CertificateDetail:
        status = _PENDING if gone else self._status(record)
        return CertificateDetail(
            hostname=record.hostname,
            status=status,
            configured=status == _ACTIVE and record.points_here,
            acme_requested=False,
            certificates=() if gone else (_entry(record, status),),
            dns_requirements=self._requirements(app, record.hostname),
            validation=CertificateValidation(
                dns_configured=record.points_here,
                alpn_configured=False,
                http_configured=False,
                ownership_txt_configured=False,
            ),
            validation_errors=() if gone else tuple(self._errors(record, records)),
            dns_records=records,
            warning=gone,
        )

    def _errors(self, record: CertificateRecord, records: DnsRecords | None) -> Sequence[ValidationError]:
        found = []
        if self._clock.now() >= record.not_after:
            found.append(("expired", "the certificate has expired", "import a new one"))
        if records is not None and not record.points_here:
            where = ", ".join(records.resolved_addresses) or "nowhere"
            found.append(("dns", f"the name leads to {where}", "point it to an address of the app, or of its host"))
        now = instant(self._clock.now())
        return [
            ValidationError(code=code, message=message, remediation=remedy, timestamp=now)
            for code, message, remedy in found
        ]

    def _requirements(self, app: AppRecord, hostname: str) -> DnsRequirements:
        ips = self._ips.list(app.name)
        return DnsRequirements(
            a=tuple(ip.ip for ip in ips if ip.type in (IpType.V4, IpType.SHARED_V4)),
            aaaa=tuple(ip.ip for ip in ips if ip.type == IpType.V6),
            acme_challenge=AcmeChallenge(),
            ownership=Ownership(
                name=f"_fly-ownership.{hostname.removeprefix('*.')}",
                app_value=f"app-{app.id[:10]}",
                org_value=f"org-{app.org[:10]}",
            ),
        )


def _entry(record: CertificateRecord, status: str) -> CertificateEntry:
    expires_at = instant(record.not_after)
    return CertificateEntry(
        source="custom",
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

"""Bodies about the certificates of an app's host names. A private key comes in and never goes out."""

from datetime import datetime
from types import NoneType
from typing import Annotated, TypeAlias

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Tag, Unary
from hawker.errors import BadRequest, NotFound, NotServed, Unavailable, Unprocessable
from hawker.permission import Action

CERTIFICATES_IN_PAGE, MOST_IN_PAGE = 25, 500
CertificatesLimit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MOST_IN_PAGE)]
_BODY_BYTES = 256 * 1024


class ImportCertificateRequest(Request, frozen=True, kw_only=True):
    """`fullchain` and `private_key` are PEM; the host's own certificate comes first."""

    hostname: str
    """The host name, which the certificate must be for, in any case; its first label may be `*`."""
    fullchain: str
    private_key: str


class OrderCertificateRequest(Request, frozen=True, kw_only=True):
    hostname: str
    """The host name that the certificate is to be for, in any case; its first label may be `*`."""


class IssuedCertificate(Answer, frozen=True, kw_only=True):
    """`type` is rsa or ecdsa."""

    type: str
    certificate_authority: str
    """The name of the authority that issued the certificate, as the certificate has it."""
    expires_at: datetime


class CertificateEntry(Answer, frozen=True, kw_only=True):
    """`source` is custom, or fly for one that the node ordered; `status` active, or pending_validation once it has
    expired."""

    source: str
    status: str
    issuer: str
    """The name of the authority that issued the certificate, as the certificate has it."""
    created_at: datetime
    expires_at: datetime
    issued: tuple[IssuedCertificate, ...]


class AcmeChallenge(Answer, frozen=True, kw_only=True):
    """The CNAME record by which the node may order certificates for the host name; empty where none is needed, and
    where this node answers no names of its own."""

    name: str = ""
    """The name at which a CNAME record is to be set: `_acme-challenge.` and the host name."""
    target: str = ""
    """The name that the CNAME record is to lead to; it is below the platform's domain."""


class Ownership(Answer, frozen=True, kw_only=True):
    """A TXT record that says whose the host name is: at `name` one of the two values, or both with `;` between. It is
    asked for where the node requires ownership."""

    name: str
    app_value: str
    """The value that shows that the host name is this app's: `app-` and 10 digits of the app's id."""
    org_value: str
    """The value that shows that the host name is the organization's, and any of its apps may have it."""


class DnsRequirements(Answer, frozen=True, kw_only=True):
    """The DNS records that the host name should have. An app without addresses needs an address of its host."""

    a: tuple[str, ...]
    """The public IPv4 addresses of the app."""
    aaaa: tuple[str, ...]
    """The public IPv6 addresses of the app."""
    acme_challenge: AcmeChallenge
    ownership: Ownership
    cname: str = ""
    """The app's name below the platform's domain, for a CNAME instead; empty without a domain."""


class DnsRecords(Answer, frozen=True, kw_only=True):
    """The addresses that the host name leads to now."""

    a: tuple[str, ...]
    """The IPv4 addresses that the host name leads to."""
    aaaa: tuple[str, ...]
    """The IPv6 addresses that the host name leads to."""
    resolved_addresses: tuple[str, ...]
    """All addresses that the host name leads to, IPv4 and IPv6."""
    cname: tuple[str, ...] = ()
    """Always empty: aliases are followed, and not told."""


class CertificateValidation(Answer, frozen=True, kw_only=True):
    dns_configured: bool
    """True when the host name leads to the app, as the last check or this one found."""
    alpn_configured: bool
    """True when the authority proved the host name by TLS-ALPN-01 for the last order."""
    http_configured: bool
    """True when the authority proved the host name by HTTP-01 for the last order."""
    ownership_txt_configured: bool
    """True when this check found the TXT record of ownership; false without a check."""


class ValidationError(Answer, frozen=True, kw_only=True):
    code: str
    """The kind of problem, for programs: `expired`, `ownership`, `acme` or `dns`."""
    message: str
    """A sentence for people that says what is wrong."""
    remediation: str
    """A sentence for people that says what mends it."""
    timestamp: datetime


class CertificateDetail(Answer, frozen=True, kw_only=True):
    """`configured`: it is served, and the name led here at the last check. `dns_records` only of a check; `warning`
    only of a removal. Before `rate_limited_until` the authority takes no order for it."""

    hostname: str
    """The host name, in lower case and A-labels."""
    status: str
    """`active`, or `pending_validation` or `pending_ownership` while there is no valid certificate."""
    configured: bool
    acme_requested: bool
    """True when the node orders the certificate and renews it."""
    certificates: tuple[CertificateEntry, ...]
    dns_requirements: DnsRequirements
    validation: CertificateValidation
    validation_errors: tuple[ValidationError, ...]
    dns_provider: str = ""
    """Always empty: who serves the zone is not asked."""
    dns_records: DnsRecords | None = None
    rate_limited_until: datetime | None = None
    warning: str = ""


class CertificateSummary(Answer, frozen=True, kw_only=True):
    hostname: str
    """The host name, in lower case and A-labels."""
    status: str
    """`active`, or `pending_validation` or `pending_ownership` while there is no valid certificate."""
    configured: bool
    """True when the certificate is served, and the host name led to the app at the last check."""
    acme_requested: bool
    """True when the node orders the certificate and renews it."""
    acme_alpn_configured: bool
    """True when the certificate is the node's own, and was ordered by TLS-ALPN-01."""
    acme_dns_configured: bool
    """True when the certificate is the node's own, and was ordered by DNS-01."""
    acme_http_configured: bool
    """True when the certificate is the node's own, and was ordered by HTTP-01."""
    has_custom_certificate: bool
    """True when somebody imported the certificate."""
    has_fly_certificate: bool
    """True when the node ordered the certificate and has it."""
    ownership_txt_configured: bool
    """Always false: a list asks no name servers."""
    created_at: datetime
    updated_at: datetime
    dns_provider: str = ""
    """Always empty: who serves the zone is not asked."""


class CertificateList(Answer, frozen=True, kw_only=True):
    certificates: tuple[CertificateSummary, ...]
    total_count: int
    """How many host names the list has, 0 or more, on all pages together."""
    next_cursor: str = ""
    """The `cursor` with which the next call shows the next page; empty on the last page."""


# Calls about the certificates of an app.

_ALL = "/v1/apps/{app_name}/certificates"
_ONE = f"{_ALL}/{{hostname}}"


class CertificateParams(msgspec.Struct, frozen=True, kw_only=True):
    """The first label of `hostname` may be `*`."""

    app_name: str
    """The app that the host name leads to."""
    hostname: str


class ListCertificatesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`filter` is a part of the host name; `limit` is at most 500."""

    filter: str | None = None
    cursor: str | None = None
    """The `next_cursor` of the page before: this page begins after it; absent: the first page."""
    limit: CertificatesLimit | None = None


LIST_CERTIFICATES = Unary(
    name="list_certificates",
    method="GET",
    path=_ALL,
    params=AppParams,
    query=ListCertificatesQuery,
    response=CertificateList,
    tag=Tag.APPS,
    summary="List the certificates of an app's host names",
    errors=(NotFound, BadRequest),
)

ORDER_CERTIFICATE = Unary(
    name="order_certificate",
    method="POST",
    path=f"{_ALL}/acme",
    params=AppParams,
    body=OrderCertificateRequest,
    response=CertificateDetail,
    tag=Tag.APPS,
    summary="Order a certificate (ACME), and its successors; it comes later",
    status=201,
    errors=(NotFound, NotServed, Unavailable),
)

IMPORT_CERTIFICATE = Unary(
    name="import_certificate",
    method="POST",
    path=f"{_ALL}/custom",
    params=AppParams,
    body=ImportCertificateRequest,
    response=CertificateDetail,
    tag=Tag.APPS,
    summary="Import a certificate that was issued elsewhere, in place of the one before",
    status=201,
    errors=(NotFound, Unavailable),
    body_bytes=_BODY_BYTES,
)

GET_CERTIFICATE = Unary(
    name="get_certificate",
    method="GET",
    path=_ONE,
    params=CertificateParams,
    response=CertificateDetail,
    tag=Tag.APPS,
    summary="Show a host name's certificate",
    errors=(NotFound, Unprocessable),
)

CHECK_CERTIFICATE = Unary(
    name="check_certificate",
    method="POST",
    path=f"{_ONE}/check",
    params=CertificateParams,
    response=CertificateDetail,
    tag=Tag.APPS,
    summary="Look up where the host name leads now",
    errors=(NotFound, Unprocessable),
    action=Action.WRITE,
)

DELETE_CERTIFICATE = Unary(
    name="delete_certificate",
    method="DELETE",
    path=_ONE,
    params=CertificateParams,
    response=NoneType,
    tag=Tag.APPS,
    summary="Remove a host name with its certificate",
    status=204,
    errors=(NotFound, Unprocessable),
    action=Action.WRITE,
)

DELETE_CUSTOM_CERTIFICATE = Unary(
    name="delete_custom_certificate",
    method="DELETE",
    path=f"{_ONE}/custom",
    params=CertificateParams,
    response=CertificateDetail,
    tag=Tag.APPS,
    summary="Remove the certificate that was imported for a host name",
    errors=(NotFound, Unprocessable),
    action=Action.WRITE,
)

DELETE_ORDERED_CERTIFICATE = Unary(
    name="delete_ordered_certificate",
    method="DELETE",
    path=f"{_ONE}/acme",
    params=CertificateParams,
    response=CertificateDetail,
    tag=Tag.APPS,
    summary="Remove the order of a certificate, and what came of it",
    errors=(NotFound, Unprocessable),
    action=Action.WRITE,
)

CERTIFICATE_ROUTES = (
    LIST_CERTIFICATES,
    ORDER_CERTIFICATE,
    IMPORT_CERTIFICATE,
    GET_CERTIFICATE,
    CHECK_CERTIFICATE,
    DELETE_CERTIFICATE,
    DELETE_CUSTOM_CERTIFICATE,
    DELETE_ORDERED_CERTIFICATE,
)


class PlatformCertificate(Answer, frozen=True, kw_only=True):
    """The certificate that edges show for one of the platform's own names."""

    hostname: str
    """In lower case and A-labels: `*.` and the platform's domain, or the name of its API."""
    status: str
    """`active`, `expired`, `missing`, or `covered` where that of a wildcard is shown."""
    source: str = ""
    """`imported` or `ordered` at the node that answers, `elsewhere` at another one; empty where there is none."""
    issuer: str = ""
    """The name of the authority that issued the certificate; empty for one of another node."""
    expires_at: datetime | None = None
    error: str = ""
    """The reason why the node could not order a certificate, for people; empty for none."""


class PlatformCertificateList(Answer, frozen=True, kw_only=True):
    certificates: tuple[PlatformCertificate, ...]


class PlatformCertificateParams(msgspec.Struct, frozen=True, kw_only=True):
    hostname: str
    """One of the platform's own names: `*.` and its domain, or the name of its API."""


# Calls about the platform's own certificates. For operators: not part of the Machines API.

_PLATFORM = "/hawker/v1/certificates"

LIST_PLATFORM_CERTIFICATES = Unary(
    name="list_platform_certificates",
    method="GET",
    path=_PLATFORM,
    params=NoParams,
    response=PlatformCertificateList,
    tag=Tag.NODE,
    summary="List the platform's own names, and what edges show for them",
)

IMPORT_PLATFORM_CERTIFICATE = Unary(
    name="import_platform_certificate",
    method="POST",
    path=_PLATFORM,
    params=NoParams,
    body=ImportCertificateRequest,
    response=PlatformCertificate,
    tag=Tag.NODE,
    summary="Import a certificate for one of the platform's own names, in place of the one before",
    status=201,
    errors=(Unprocessable,),
    action=Action.ALL,
    body_bytes=_BODY_BYTES,
)

DELETE_PLATFORM_CERTIFICATE = Unary(
    name="delete_platform_certificate",
    method="DELETE",
    path=f"{_PLATFORM}/{{hostname}}",
    params=PlatformCertificateParams,
    response=PlatformCertificate,
    tag=Tag.NODE,
    summary="Remove the certificate that was imported for one of the platform's own names",
    errors=(NotFound, Unprocessable),
    action=Action.ALL,
)

PLATFORM_CERTIFICATE_ROUTES = (LIST_PLATFORM_CERTIFICATES, IMPORT_PLATFORM_CERTIFICATE, DELETE_PLATFORM_CERTIFICATE)

"""The part of the fake node that answers about certificates of apps, where requests go, and people's computers."""

from datetime import UTC, datetime
from typing import Any

from hawker.api.contract.certificate import (
    AcmeChallenge,
    CertificateDetail,
    CertificateEntry,
    CertificateList,
    CertificateSummary,
    CertificateValidation,
    DnsRecords,
    DnsRequirements,
    IssuedCertificate,
    Ownership,
    PlatformCertificate,
    PlatformCertificateList,
    ValidationError,
)
from hawker.api.contract.port import RouteExplanation
from hawker.api.contract.private_network import WireguardPeer, WireguardPeerList
from hawker.api.route import Call

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def peer(name: str, org: str, public_key: str) -> WireguardPeer:
    return WireguardPeer(
        name=name,
        org=org,
        network="default",
        peerip="fdaa:0:7::2:2",
        dns="fdaa:0:7::3",
        endpoint="gate.example.com:51820",
        pubkey="gateway",
        allowed_ips="fdaa:0:7::/48",
        peer_pubkey=public_key,
        node="00000001",
        created_at=AT,
    )


def detail(hostname: str, records: DnsRecords | None = None) -> CertificateDetail:
    issued = IssuedCertificate(type="ecdsa", certificate_authority="Test Root", expires_at=AT)
    entry = CertificateEntry(
        source="custom", status="active", issuer="Test Root", created_at=AT, expires_at=AT, issued=(issued,)
    )
    error = ValidationError(code="dns", message="the name leads to ::9", remediation="point it here", timestamp=AT)
    return CertificateDetail(
        hostname=hostname,
        status="active",
        configured=False,
        acme_requested=False,
        certificates=(entry,),
        dns_requirements=DnsRequirements(
            a=("203.0.113.5",),
            aaaa=(),
            acme_challenge=AcmeChallenge(),
            ownership=Ownership(name="_fly-ownership.x", app_value="app-1", org_value="org-1"),
        ),
        validation=CertificateValidation(
            dns_configured=False, alpn_configured=False, http_configured=False, ownership_txt_configured=False
        ),
        validation_errors=(error,) if records else (),
        dns_records=records,
    )


class FakeCertificates:
    async def _list_wireguard_peers(self, call: Call[Any, Any, Any]) -> WireguardPeerList:
        return WireguardPeerList(peers=(peer("laptop", call.params.org_slug, "k"),))

    async def _put_wireguard_peer(self, call: Call[Any, Any, Any]) -> WireguardPeer:
        return peer(call.params.peer, call.params.org_slug, call.body.pubkey)

    async def _delete_wireguard_peer(self, call: Call[Any, Any, Any]) -> None:
        """It is gone."""

    async def _list_certificates(self, call: Call[Any, Any, Any]) -> CertificateList:
        one = CertificateSummary(
            hostname="*.example.com",
            status="active",
            configured=True,
            acme_requested=False,
            acme_alpn_configured=False,
            acme_dns_configured=False,
            acme_http_configured=False,
            has_custom_certificate=True,
            has_fly_certificate=False,
            ownership_txt_configured=False,
            created_at=AT,
            updated_at=AT,
        )
        return CertificateList(certificates=(one,), total_count=1)

    async def _import_certificate(self, call: Call[Any, Any, Any]) -> CertificateDetail:
        return detail(call.body.hostname)

    async def _order_certificate(self, call: Call[Any, Any, Any]) -> CertificateDetail:
        return detail(call.body.hostname)

    async def _get_certificate(self, call: Call[Any, Any, Any]) -> CertificateDetail:
        return detail(call.params.hostname)

    async def _check_certificate(self, call: Call[Any, Any, Any]) -> CertificateDetail:
        return detail(call.params.hostname, DnsRecords(a=(), aaaa=("::9",), resolved_addresses=("::9",)))

    async def _delete_certificate(self, call: Call[Any, Any, Any]) -> None:
        return None

    async def _list_platform_certificates(self, call: Call[Any, Any, Any]) -> PlatformCertificateList:
        wide = PlatformCertificate(
            hostname="*.apps.example.com", status="active", source="imported", issuer="Test Root", expires_at=AT
        )
        missing = PlatformCertificate(hostname="api.example.com", status="missing", error="the authority is away")
        return PlatformCertificateList(certificates=(wide, missing))

    async def _import_platform_certificate(self, call: Call[Any, Any, Any]) -> PlatformCertificate:
        return PlatformCertificate(hostname=call.body.hostname, status="active", source="imported", expires_at=AT)

    async def _delete_platform_certificate(self, call: Call[Any, Any, Any]) -> PlatformCertificate:
        return PlatformCertificate(hostname=call.params.hostname, status="missing")

    async def _explain_route(self, call: Call[Any, Any, Any]) -> RouteExplanation:
        return RouteExplanation(url=call.query.url, app=call.params.app_name, listeners=())

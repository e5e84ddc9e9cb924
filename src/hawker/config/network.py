"""The shape of a machine's names, metrics and static files."""

from hawker.config.part import Part


class DnsOption(Part, frozen=True, kw_only=True):
    name: str | None = None
    value: str | None = None


class DnsForwardRule(Part, frozen=True, kw_only=True):
    basename: str | None = None
    addr: str | None = None


class DnsConfig(Part, frozen=True, kw_only=True):
    skip_registration: bool | None = None
    nameservers: tuple[str, ...] | None = None
    searches: tuple[str, ...] | None = None
    options: tuple[DnsOption, ...] | None = None
    dns_forward_rules: tuple[DnsForwardRule, ...] | None = None
    hostname: str | None = None
    hostname_fqdn: str | None = None


class Metrics(Part, frozen=True, kw_only=True):
    port: int | None = None
    path: str | None = None
    https: bool | None = None


class Static(Part, frozen=True, kw_only=True):
    guest_path: str | None = None
    url_prefix: str | None = None
    tigris_bucket: str | None = None
    index_document: str | None = None

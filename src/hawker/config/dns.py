"""What the `dns` of a config asks for inside the machine: its resolver's file and its host name. Pure text."""

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from hawker.config.machine import DnsConfig

MAX_NAMESERVERS, MAX_SEARCHES, MAX_OPTIONS = 3, 6, 16
MAX_NAME_CHARS = 253
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_OPTION = re.compile(r"[a-z0-9-]{1,32}")
_VALUE = re.compile(r"\d{0,9}")


def resolver_file(dns: DnsConfig | None, nameservers: Sequence[str]) -> str:
    """resolv.conf(5): the config's own name servers, or those of the node."""
    asked = dns or DnsConfig()
    lines = [f"nameserver {server}" for server in asked.nameservers or nameservers]
    if asked.searches:
        lines.append(f"search {' '.join(asked.searches)}")
    if asked.options:
        words = (f"{option.name}:{option.value}" if option.value else str(option.name) for option in asked.options)
        lines.append(f"options {' '.join(words)}")
    return "".join(f"{line}\n" for line in lines)


def host_names(dns: DnsConfig | None, machine_id: str) -> tuple[str, ...]:
    """The host name, then the other names that the machine has for itself."""
    asked = dns or DnsConfig()
    full = (asked.hostname_fqdn or "").removesuffix(".")
    return tuple(dict.fromkeys(filter(None, (asked.hostname or machine_id, full, machine_id))))


def asks_inside(dns: DnsConfig | None) -> bool:
    """Whether anything of it has to be written into the machine."""
    return dns is not None and any((dns.nameservers, dns.searches, dns.options, dns.hostname, dns.hostname_fqdn))


def complaints(dns: DnsConfig) -> Iterator[str]:
    """The complaints about the config, each opening with the field's path."""
    yield from _too_many("nameservers", dns.nameservers, MAX_NAMESERVERS)
    yield from _too_many("searches", dns.searches, MAX_SEARCHES)
    yield from _too_many("options", dns.options, MAX_OPTIONS)
    for server in dns.nameservers or ():
        if not _is_address(server):
            yield f"nameservers: {server!r} is not an IP address"
    for name in dns.searches or ():
        if not _is_name(name.removesuffix(".")):
            yield f"searches: {name!r} is not a domain name"
    for option in dns.options or ():
        if not _OPTION.fullmatch(option.name or "") or not _VALUE.fullmatch(option.value or ""):
            yield f"options: {option.name!r} {option.value!r} is no option of a resolver, such as ndots 2"
    if dns.hostname and not _LABEL.fullmatch(dns.hostname):
        yield f"hostname: {dns.hostname!r} is not one label of letters, digits and dashes"
    if dns.hostname_fqdn and not _is_name(dns.hostname_fqdn.removesuffix(".")):
        yield f"hostname_fqdn: {dns.hostname_fqdn!r} is not a domain name"


def _too_many(path: str, items: Sequence[object] | None, most: int) -> Iterator[str]:
    if len(items or ()) > most:
        yield f"{path} has more than {most} items"


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME_CHARS and all(_LABEL.fullmatch(label) for label in text.split("."))


def _is_address(text: str) -> bool:
    try:
        return "%" not in str(ip_address(text))
    except ValueError:
        return False

"""Where a pull may lead. A registry, what it redirects to and the token server that it names are strangers' words, and
the host's own network trusts the host: so none of them leads to an inside address, unless the operator lists it.

Names are looked up once, by `resolver.py`, and the connection goes to the addresses that were looked at: a name that
changes its address between look and connection gains nothing.
"""

from collections.abc import Container
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

_INSIDE = (IPv4Network("168.63.129.16/32"), IPv4Network("192.0.0.0/24"))  # of clouds, though they look public
_NAT64 = IPv6Network("64:ff9b::/96")


class InsideAddress(OSError):
    """The name is not one of the internet, and nobody listed it."""


def is_inside(address: str) -> bool:
    """Whether an address, or `localhost`, is of this host or its networks; False for any other name."""
    host = address.strip("[]").partition("%")[0].rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return _is_inside(ip_address(host))
    except ValueError:
        return False


def host_of(registry: str) -> str:
    """The host of a registry without its port."""
    host, _, port = registry.rpartition(":")
    return host if port.isdigit() else registry


def is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def _is_inside(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        within = address.ipv4_mapped or address.sixtofour
        if within is None and address in _NAT64:
            within = IPv4Address(int(address) & 0xFFFF_FFFF)
        if within is not None:
            return _is_inside(within)
    return not address.is_global or address.is_multicast or any(address in network for network in _INSIDE)


class PullReach:
    """`plain` are the registries that may be spoken to without TLS, `listed` those and others that may be anywhere;
    each with its port or for all ports."""

    def __init__(self, plain: Container[str] = frozenset(), listed: Container[str] = frozenset()) -> None:
        self._plain = plain
        self._listed = listed

    def scheme(self, registry: str) -> str:
        """The scheme for a registry (with its port, if it has one): http or https."""
        parts = urlsplit(f"//{registry}")
        return "http" if self._is_plain(parts) or is_loopback(parts.hostname) else "https"

    def refusal(self, url: str, registry: str, before: str | None = None) -> str | None:
        """Why a pull from `registry` may not go to a URL, to which it was led from the URL `before`."""
        try:
            parts, port = urlsplit(url), urlsplit(url).port or 0
        except ValueError:
            return "refusing to go where no URL leads"
        own = parts.netloc == registry
        plain = parts.scheme == "http" and (self._is_plain(parts) or (own and is_loopback(parts.hostname)))
        if parts.scheme != "https" and not plain:
            return f"refusing to speak {parts.scheme or 'nothing known'} to {parts.netloc}"
        if plain and before is not None and urlsplit(before).scheme == "https":
            return f"refusing to be led from TLS to plain HTTP at {parts.netloc}"
        if is_inside(parts.hostname or "") and not own and not self.is_listed(parts.hostname or "", port):
            return not_public(parts.netloc)
        return None

    def is_listed(self, host: str, port: int) -> bool:
        """Whether it may be anywhere."""
        names = (host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}")
        return any(name in self._listed or name in self._plain for name in names)

    def _is_plain(self, parts: SplitResult) -> bool:
        return parts.netloc in self._plain or (parts.hostname or "") in self._plain


def not_public(host: str) -> str:
    return f"{host} is not at a public address; the node's operator lists such a registry with --private-registry"

"""What narrows a token. Every caveat of a token must allow an attempt; a kind that is not known here allows nothing."""

from ipaddress import ip_address, ip_network
from typing import TypeAlias

import msgspec

from hawker.permission import Attempt, actions_of, covers, letters_of


class Orgs(msgspec.Struct, frozen=True, array_like=True, tag="org"):
    """Allows only what belongs to one of these organizations."""

    names: tuple[str, ...]
    """Slugs of organizations; none of them allows nothing."""

    def allows(self, attempt: Attempt) -> bool:
        return attempt.org in self.names

    def __str__(self) -> str:
        return f"org {', '.join(self.names)}"


class Apps(msgspec.Struct, frozen=True, array_like=True, tag="app"):
    """Allows only these apps and what belongs to them."""

    names: tuple[str, ...]
    """Names of apps; none of them allows nothing."""

    def allows(self, attempt: Attempt) -> bool:
        return attempt.app in self.names

    def __str__(self) -> str:
        return f"app {', '.join(self.names)}"


class Machines(msgspec.Struct, frozen=True, array_like=True, tag="machine"):
    """Allows only these machines."""

    ids: tuple[str, ...]
    """The ids of machines; none of them allows nothing."""

    def allows(self, attempt: Attempt) -> bool:
        return attempt.machine in self.ids

    def __str__(self) -> str:
        return f"machine {', '.join(self.ids)}"


class Actions(msgspec.Struct, frozen=True, array_like=True, tag="action"):
    """Allows only these classes of actions, as the letters of `permission.Action`."""

    letters: str
    """The letters of the classes that are allowed, each once."""

    def __post_init__(self) -> None:
        actions_of(self.letters)

    def allows(self, attempt: Attempt) -> bool:
        return covers(actions_of(self.letters), attempt.action)

    def __str__(self) -> str:
        return f"actions {letters_of(actions_of(self.letters))}"


class Expires(msgspec.Struct, frozen=True, array_like=True, tag="expires"):
    """Allows only calls before this moment, in Unix seconds."""

    at: int

    def allows(self, attempt: Attempt) -> bool:
        return attempt.now < self.at

    def __str__(self) -> str:
        return f"expires {self.at}"


class Sources(msgspec.Struct, frozen=True, array_like=True, tag="source"):
    """Allows only callers whose address is in one of these networks (CIDR)."""

    networks: tuple[str, ...]
    """The networks, of IPv4 and IPv6."""

    def __post_init__(self) -> None:
        for network in self.networks:
            ip_network(network)

    def allows(self, attempt: Attempt) -> bool:
        try:
            address = ip_address(attempt.source)
        except ValueError:  # a caller without an address, over a unix socket say
            return False
        if address.version == 6 and address.ipv4_mapped is not None:  # a socket for both families shows IPv4 so
            address = address.ipv4_mapped
        return any(address in ip_network(network) for network in self.networks)

    def __str__(self) -> str:
        return f"source {', '.join(self.networks)}"


class Holder(msgspec.Struct, frozen=True, array_like=True, tag="holder"):
    """Whom the token was made for: a name for logs and leases, of which the first one counts. Refuses nothing, and is
    the key of nothing: the token's holder may choose it."""

    name: str
    """The name as the token's maker wrote it."""

    def allows(self, attempt: Attempt) -> bool:
        return True

    def __str__(self) -> str:
        return f"for {self.name}"


Caveat: TypeAlias = Orgs | Apps | Machines | Actions | Expires | Sources | Holder

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Caveat] = msgspec.msgpack.Decoder(Caveat)


def encode(caveat: Caveat) -> bytes:
    return _encoder.encode(caveat)


def decode(data: bytes) -> Caveat:
    """The caveat of `data`. Raises `ValueError` for a kind that is not known here, and for one that makes no sense."""
    return _decoder.decode(data)


def refusal(caveats: tuple[Caveat, ...], attempt: Attempt) -> Caveat | None:
    """The first caveat that stands in the way."""
    return next((caveat for caveat in caveats if not caveat.allows(attempt)), None)


_OURS = frozenset({"broker", "certificates", "deploy", "hawker", "move", "node", "root", "spares"})
_KINDS = frozenset({"node", "token"})


def holder_of(caveats: tuple[Caveat, ...]) -> str:
    """The first name: whoever narrows a token further cannot take another's. Empty without one, and where it is one
    that Hawker's own parts call by, or how one without a name is called."""
    name = next((caveat.name for caveat in caveats if isinstance(caveat, Holder)), "")
    words = name.casefold().split()
    taken = not words or words[0] in _KINDS or (len(words) == 1 and words[0] in _OURS)
    return "" if taken else name


def expiry_of(caveats: tuple[Caveat, ...]) -> int | None:
    """The first moment that ends all calls, in Unix seconds; whatever is narrowed further ends no later."""
    return min((caveat.at for caveat in caveats if isinstance(caveat, Expires)), default=None)


def needs_org(caveats: tuple[Caveat, ...]) -> bool:
    return any(isinstance(caveat, Orgs) for caveat in caveats)

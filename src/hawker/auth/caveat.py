"""What narrows a token. Every caveat of a token must allow an attempt; a kind that is not known here allows nothing."""

from ipaddress import ip_address, ip_network
from typing import TypeAlias

import msgspec

from hawker.permission import Attempt, actions_of, covers, letters_of


class Orgs(msgspec.Struct, frozen=True, array_like=True, tag="org"):
    """Only what belongs to one of these organizations."""

    names: tuple[str, ...]
    """Slugs of organizations; none of them allows nothing."""

    def allows(self, attempt: Attempt) -> bool:
        return attempt.org in self.names

    def __str__(self) -> str:
        return f"org {', '.join(self.names)}"


class Apps(msgspec.Struct, frozen=True, array_like=True, tag="app"):
    """Only these apps and what belongs to them."""

    names: tuple[str, ...]
    """Names of apps; none of them allows nothing."""

    def allows(self, attempt: Attempt) -> bool:
        return attempt.app in self.names

    def __str__(self) -> str:
        return f"app {', '.join(self.names)}"


class Machines(msgspec.Struct, frozen=True, array_like=True, tag="machine"):
    """Only these machines."""

    ids: tuple[str, ...]
    """Of machines; none of them allows nothing."""

    def allows(self, attempt: Attempt) -> bool:
        return attempt.machine in self.ids

    def __str__(self) -> str:
        return f"machine {', '.join(self.ids)}"


class Actions(msgspec.Struct, frozen=True, array_like=True, tag="action"):
    """Only these classes of actions, as the letters of `permission.Action`."""

    letters: str
    """One for each class that is allowed, each once."""

    def __post_init__(self) -> None:
        actions_of(self.letters)

    def allows(self, attempt: Attempt) -> bool:
        return covers(actions_of(self.letters), attempt.action)

    def __str__(self) -> str:
        return f"actions {letters_of(actions_of(self.letters))}"


class Expires(msgspec.Struct, frozen=True, array_like=True, tag="expires"):
    """Only before this moment, in Unix seconds."""

    at: int

    def allows(self, attempt: Attempt) -> bool:
        return attempt.now < self.at

    def __str__(self) -> str:
        return f"expires {self.at}"


class Sources(msgspec.Struct, frozen=True, array_like=True, tag="source"):
    """Only for callers whose address is in one of these networks (CIDR)."""

    networks: tuple[str, ...]
    """IPv4 and IPv6."""

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
    """Whom the token was made for: a name for logs and leases, of which the first one counts. Refuses nothing."""

    name: str
    """As the token's maker wrote it."""

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
    """Raises `ValueError` for a kind that is not known here, and for one that makes no sense."""
    return _decoder.decode(data)


def refusal(caveats: tuple[Caveat, ...], attempt: Attempt) -> Caveat | None:
    """The first caveat that stands in the way."""
    return next((caveat for caveat in caveats if not caveat.allows(attempt)), None)


def holder_of(caveats: tuple[Caveat, ...]) -> str:
    """The first name: whoever narrows a token further cannot take another's."""
    return next((caveat.name for caveat in caveats if isinstance(caveat, Holder)), "")


def needs_org(caveats: tuple[Caveat, ...]) -> bool:
    return any(isinstance(caveat, Orgs) for caveat in caveats)

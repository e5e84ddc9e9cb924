"""Whether a host name is an app's to have, by what the name's own zone says. Pure but for the questions it asks.

Asked for once, before an app has the name: then it stays the app's until it gives it back, as where nothing is asked.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from hawker.errors import Unprocessable
from hawker.value_object import ValueObject

Addresses: TypeAlias = Callable[[str], Awaitable[tuple[str, ...]]]
"""The addresses that a host's name leads to; none when it leads nowhere."""
Records: TypeAlias = Callable[[str, str], Awaitable[tuple[str, ...]]]
"""The records of a name: the texts of `TXT`, the target of `CNAME` without the dot at its end."""
TXT, CNAME = "TXT", "CNAME"
_BETWEEN_VALUES = ";"


class NameLookup(ValueObject, frozen=True):
    """The answers of this host's name servers."""

    addresses: Addresses
    records: Records


class OwnershipProof(ValueObject, frozen=True, kw_only=True):
    """The proof that a host name is an app's, one of three: a text, a name of its zone that leads to what our zone has
    for this app alone, and that the host name leads to addresses that the app has alone."""

    hostname: str
    """The host name for which somebody wants a certificate, in lower case."""
    app_value: str
    """The text that shows it for this app."""
    org_value: str
    """The text that shows it for every app of the organization."""
    challenge: tuple[str, str] = ("", "")
    """A name of the host name's zone and where it has to lead; empty where we have no zone."""
    addresses: frozenset[str] = frozenset()
    """The addresses that the app has alone; none where it has none."""

    @property
    def text_name(self) -> str:
        return f"_fly-ownership.{self.hostname.removeprefix('*.')}"


async def check_ownership(proof: OwnershipProof, lookup: NameLookup) -> None:
    """Checks that a host name is the app's. Raises `Unprocessable` with what to do."""
    if await says_so(proof, lookup) or await _delegates(proof, lookup) or await _leads_here(proof, lookup):
        return
    raise Unprocessable(
        f"hostname: {proof.hostname} is not shown to be this app's: set the TXT record {proof.text_name} to"
        f" {proof.app_value} (or {proof.org_value}, for all apps of the organization), and ask again"
    )


async def says_so(proof: OwnershipProof, lookup: NameLookup) -> bool:
    """Whether the text is there."""
    texts = await lookup.records(proof.text_name, TXT)
    values = {value.strip() for text in texts for value in text.split(_BETWEEN_VALUES)}
    return not values.isdisjoint((proof.app_value, proof.org_value))


async def _delegates(proof: OwnershipProof, lookup: NameLookup) -> bool:
    name, target = proof.challenge
    return bool(target) and target in {each.lower() for each in await lookup.records(name, CNAME)}


async def _leads_here(proof: OwnershipProof, lookup: NameLookup) -> bool:
    """Of a wildcard nobody can look that up: it leads as many ways as there are names. One address that is somebody
    else's is one too many."""
    if not proof.addresses or proof.hostname.startswith("*"):
        return False
    found = await lookup.addresses(proof.hostname)
    return bool(found) and proof.addresses.issuperset(found)

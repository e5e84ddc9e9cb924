"""Whose a host name is, by its zone's word."""

import pytest

from hawker.errors import Unprocessable
from hawker.secret.ownership import NameLookup, OwnershipProof, check_ownership

pytestmark = pytest.mark.anyio
NAME = "shop.example.com"
CHALLENGE = ("_acme-challenge.example.com", "example.com.1f8a3c02.acme.apps.example.net")


def proof(hostname: str = NAME) -> OwnershipProof:
    return OwnershipProof(
        hostname=hostname,
        app_value="app-1f8a3c0211",
        org_value="org-acme",
        challenge=CHALLENGE,
        addresses=frozenset({"192.0.2.1", "2001:db8::1"}),
    )


def world(addresses: tuple[str, ...] = (), **records: tuple[str, tuple[str, ...]]) -> NameLookup:
    """`records` by kind: a name, and what is said of it."""

    async def leads(name: str) -> tuple[str, ...]:
        return addresses if name == NAME else ()

    async def says(name: str, kind: str) -> tuple[str, ...]:
        at, values = records.get(kind, ("", ()))
        return values if name == at else ()

    return NameLookup(leads, says)


TEXT = f"_fly-ownership.{NAME}"


@pytest.mark.parametrize(
    "lookup",
    [
        world(TXT=(TEXT, ("app-1f8a3c0211",))),
        world(TXT=(TEXT, ("v=spf1 -all", "app-0000000000 ; org-acme"))),
        world(CNAME=(CHALLENGE[0], (CHALLENGE[1].upper(),))),
        world(addresses=("192.0.2.1",)),
        world(addresses=("192.0.2.1", "2001:db8::1")),
    ],
)
async def test_a_name_is_the_apps_by_any_of_three_proofs(lookup: NameLookup) -> None:
    await check_ownership(proof(), lookup)


@pytest.mark.parametrize(
    "lookup",
    [
        world(),
        world(TXT=(TEXT, ("app-1f8a3c02", "app-1f8a3c02110", "org-acme-2", "xorg-acme"))),
        world(TXT=("_fly-ownership.example.com", ("app-1f8a3c0211",))),
        world(CNAME=(CHALLENGE[0], ("example.com.ffffffff.acme.apps.example.net",))),
        world(addresses=("192.0.2.2",)),
        world(addresses=("192.0.2.1", "203.0.113.5")),
    ],
)
async def test_a_name_is_not_the_apps_by_anybody_elses(lookup: NameLookup) -> None:
    with pytest.raises(Unprocessable, match="set the TXT record _fly-ownership"):
        await check_ownership(proof(), lookup)


async def test_a_wildcard_is_shown_by_its_zone_and_by_no_address() -> None:
    await check_ownership(proof(f"*.{NAME}"), world(TXT=(TEXT, ("org-acme",))))
    with pytest.raises(Unprocessable):
        await check_ownership(proof(f"*.{NAME}"), world(addresses=("192.0.2.1",)))


async def test_an_app_without_zone_or_addresses_of_its_own_needs_the_text() -> None:
    bare = OwnershipProof(hostname=NAME, app_value="app-1", org_value="org-1")
    with pytest.raises(Unprocessable):
        await check_ownership(bare, world(addresses=("192.0.2.1",), CNAME=("", ("",))))

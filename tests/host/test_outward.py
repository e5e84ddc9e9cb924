"""The host's own address, as its routes have it."""

from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from hawker.host import netns
from hawker.host.outward import own_address


@pytest.mark.parametrize(("version", "kind"), [(4, IPv4Address), (6, IPv6Address)])
def test_it_is_an_address_of_its_family_if_there_is_one(version: int, kind: type[IPv4Address | IPv6Address]) -> None:
    found = own_address(version)
    assert found is None or (not kind(found).is_unspecified and not kind(found).is_loopback)


@pytest.mark.root
@pytest.mark.parametrize("version", [4, 6])
def test_a_host_without_routes_has_none(version: int, tmp_path: Path) -> None:
    path = tmp_path / "netns"
    found: list[str | None] = []
    netns.create(path, lambda _: found.append(own_address(version)))
    netns.delete(path)
    assert found == [None]

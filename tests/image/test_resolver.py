"""A name is looked up once, and an inside address is connected to only where it is listed."""

import pytest

from hawker.image.reach import InsideAddress, PullReach
from hawker.image.resolver import PublicResolver

pytestmark = pytest.mark.anyio


async def test_name_that_leads_inside_is_not_connected_to_unless_it_is_listed() -> None:
    """Whatever the name said a moment ago: the addresses that come out here are those that are connected to."""
    loopback = "127.0.0.1.example.invalid"
    resolver = PublicResolver(PullReach(listed=frozenset({"ip6-localhost"})), frozenset({"ip6-loopback"}))
    with pytest.raises(OSError, match=r"not known|No address|failure"):
        await resolver.resolve(loopback, 443)
    assert await resolver.resolve("8.8.8.8", 443)
    for numeric in ("127.1", "0x7f.1", "2130706433"):  # what only the C library takes for an address
        with pytest.raises(InsideAddress, match="not at a public address"):
            await resolver.resolve(numeric, 80)

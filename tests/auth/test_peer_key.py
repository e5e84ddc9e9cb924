"""What is made from a cluster's key."""

import pytest

from hawker.auth.peer_key import PeerTokens, app_bundle_key, peer_token
from hawker.errors import Unauthorized
from hawker.permission import Action, Attempt

KEY, OTHER = bytes(32), bytes([1] * 32)


def test_every_node_with_the_key_makes_the_same() -> None:
    assert peer_token(KEY) == peer_token(bytes(32)) and app_bundle_key(KEY) == app_bundle_key(bytes(32))


def test_another_key_makes_another() -> None:
    assert peer_token(KEY) != peer_token(OTHER) and app_bundle_key(KEY) != app_bundle_key(OTHER)


def test_a_token_says_what_it_is_and_nothing_of_the_luggage() -> None:
    token = peer_token(KEY)
    assert token.startswith("hwp_") and len(token) == 68
    assert app_bundle_key(KEY).hex() not in token and len(app_bundle_key(KEY)) == 32


pytestmark = pytest.mark.anyio

OLD, NEW = bytes(32), bytes([1] * 32)


async def test_a_holder_of_any_key_may_do_everything() -> None:
    tokens = PeerTokens(lambda: (NEW, OLD))
    for key in (NEW, OLD):
        grant = await tokens(f"Bearer {peer_token(key)}", "10.0.0.1")
        assert grant.permits(Attempt(Action.ALL))


async def test_a_token_shown_is_made_of_the_key_in_use() -> None:
    keys = [OLD]
    tokens = PeerTokens(lambda: tuple(keys))
    assert tokens.own().reveal() == peer_token(OLD)
    keys[:] = [NEW]
    assert tokens.own().reveal() == peer_token(NEW)
    with pytest.raises(Unauthorized):
        await tokens(f"Bearer {peer_token(OLD)}", "")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {peer_token(OLD)}",
        "Bearer hwk_root",
        "Bearer \udcff",
        "Bearer " + "x" * 9999,
    ],
)
async def test_nobody_else_may(header: str | None) -> None:
    with pytest.raises(Unauthorized, match="ask the one for clients"):
        await PeerTokens(lambda: (OLD,))(header, "")

"""What is made from a cluster's key."""

from hawker.auth.peer_key import luggage_key, peer_token

KEY, OTHER = bytes(32), bytes([1] * 32)


def test_every_node_with_the_key_makes_the_same() -> None:
    assert peer_token(KEY) == peer_token(bytes(32)) and luggage_key(KEY) == luggage_key(bytes(32))


def test_another_key_makes_another() -> None:
    assert peer_token(KEY) != peer_token(OTHER) and luggage_key(KEY) != luggage_key(OTHER)


def test_a_token_says_what_it_is_and_nothing_of_the_luggage() -> None:
    token = peer_token(KEY)
    assert token.startswith("hwp_") and len(token) == 68
    assert luggage_key(KEY).hex() not in token and len(luggage_key(KEY)) == 32

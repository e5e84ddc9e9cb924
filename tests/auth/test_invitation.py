import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.auth.invitation import (
    Invitation,
    JoinAttempt,
    from_text,
    is_proof,
    join_secret,
    sealed_for,
    to_text,
)
from hawker.log import Secret

ROOT = Secret("hwk_root")
SECRET = join_secret(ROOT, "0000000aff")
INVITATION = Invitation(cluster="c1", id="0000000aff", secret=SECRET)
HOST = JoinAttempt("0000000aff", SECRET, bytes(range(32)), "0000000b")


def test_an_invitation_is_read_as_it_was_written() -> None:
    assert from_text(to_text(INVITATION)) == INVITATION
    assert to_text(INVITATION).startswith("hwj_")


@given(st.text(max_size=200).map(lambda text: f"hwj_{text}") | st.text(max_size=40))
def test_a_text_that_is_no_invitation_is_told_without_its_content(text: str) -> None:
    with pytest.raises(ValueError, match="not an invitation"):
        from_text(text)


def test_each_invitation_and_each_root_token_has_its_own_secret() -> None:
    others = {join_secret(ROOT, "root"), join_secret(ROOT, "0000000afe"), join_secret(Secret("hwk_2"), "0000000aff")}
    assert SECRET not in others and len(others) == 3


def test_neither_an_invitation_nor_an_attempt_shows_its_secret() -> None:
    assert SECRET.hex() not in repr(INVITATION) and repr(SECRET) not in f"{INVITATION!r}{HOST!r}"


def test_a_proof_is_good_for_one_key_one_node_and_one_invitation() -> None:
    assert is_proof(HOST.proof, SECRET, "0000000aff", HOST.public, "0000000b")
    assert not is_proof(HOST.proof, SECRET, "0000000aff", HOST.public, "")
    assert not is_proof(HOST.proof, SECRET, "0000000afe", HOST.public, "0000000b")
    assert not is_proof(HOST.proof, SECRET, "0000000aff", bytes(32), "0000000b")
    assert not is_proof(HOST.proof, join_secret(ROOT, "root"), "0000000aff", HOST.public, "0000000b")


def test_only_the_host_that_asked_and_has_the_secret_opens_the_answer() -> None:
    key, sealed = sealed_for(HOST.public, SECRET, HOST.invite, b"keys")
    assert HOST.opened(key, sealed) == b"keys" and b"keys" not in sealed
    for other in (
        JoinAttempt(HOST.invite, SECRET, bytes(32), HOST.node),
        JoinAttempt(HOST.invite, bytes(32), HOST.key, HOST.node),
        JoinAttempt("root", SECRET, HOST.key, HOST.node),
    ):
        with pytest.raises(ValueError, match="not sealed with this secret"):
            other.opened(key, sealed)
    with pytest.raises(ValueError, match="not sealed"):
        HOST.opened(key, sealed[:-1] + bytes([sealed[-1] ^ 1]))


def test_a_key_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="shared key"):
        sealed_for(bytes(32), SECRET, HOST.invite, b"keys")

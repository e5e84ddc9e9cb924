"""Facts about tokens: what their holder can do with them, and what nobody can."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.auth.caveat import Apps, Caveat, Expires, Holder, Machines, encode
from hawker.auth.macaroon import (
    MAX_CAVEATS,
    PREFIX,
    Macaroon,
    chain,
    from_text,
    key_of,
    mint,
    narrow,
    to_text,
    token_id,
)

KEY, OTHER = key_of("hwk_root"), key_of("hwk_other")
NONCE = bytes(range(16))
NOW = 1_700_000_000

caveats = st.lists(
    st.one_of(
        st.builds(Apps, st.tuples(st.text(max_size=8))),
        st.builds(Machines, st.tuples(st.text(max_size=8))),
        st.builds(Expires, st.integers(0, 2**40)),
        st.builds(Holder, st.text(max_size=8)),
    ),
    max_size=6,
)


def made(*added: Caveat) -> Macaroon:
    return narrow(mint(KEY, NONCE, NOW), *added)


def packed(*parts: object) -> str:
    """A token of these parts, whatever they are."""
    return PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(parts)).rstrip(b"=").decode()


@given(caveats)
def test_a_token_reads_as_it_was_written_and_is_signed(added: list[Caveat]) -> None:
    token = from_text(to_text(made(*added)))
    assert token == made(*added) and token.caveats == tuple(added)
    ids = chain(KEY, token)
    assert ids is not None and len(ids) == len(added) + 1 and ids[-1] == token.id


@given(caveats, caveats)
def test_a_holder_can_narrow_without_the_key(first: list[Caveat], then: list[Caveat]) -> None:
    token = narrow(from_text(to_text(made(*first))), *then)
    assert token == made(*first, *then)
    ids = chain(KEY, token)
    assert ids is not None and made(*first).id in ids


@given(caveats, st.data())
def test_no_byte_can_be_changed(added: list[Caveat], data: st.DataObject) -> None:
    body = bytearray(base64.urlsafe_b64decode(to_text(made(*added)).removeprefix(PREFIX) + "=="))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] ^= data.draw(st.integers(1, 255))
    try:
        token = from_text(PREFIX + base64.urlsafe_b64encode(body).rstrip(b"=").decode())
    except ValueError:
        return
    assert chain(KEY, token) is None


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_no_caveat_can_be_taken_away(taken: int) -> None:
    token = made(Apps(("a",)), Machines(("m",)), Expires(5))
    left = [data for place, data in enumerate(token.raw_caveats) if place != taken]
    assert chain(KEY, from_text(packed(token.raw_header, left, token.tag))) is None


def test_caveats_cannot_change_places() -> None:
    token = made(Holder("ann"), Holder("eve"))
    swapped = from_text(packed(token.raw_header, token.raw_caveats[::-1], token.tag))
    assert chain(KEY, swapped) is None


def test_a_token_of_another_root_is_none_of_ours() -> None:
    assert chain(OTHER, made()) is None


def test_the_bytes_count_not_what_they_mean() -> None:
    """The same caveat, encoded otherwise: a verifier that encodes again would take it."""
    long_form = b"\x92\xa6holder\xd9\x03ann"
    token = made(Holder("ann"))
    assert long_form != encode(Holder("ann"))
    read = from_text(packed(token.raw_header, [long_form], token.tag))
    assert read.caveats == (Holder("ann"),) and chain(KEY, read) is None


def test_a_printed_token_gives_nothing_away() -> None:
    token = made(Apps(("a",)))
    assert repr(token) == f"Macaroon({token_id(token.tag)})"
    assert token.tag.hex() not in token.id and token.id not in to_text(token)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hwk_",
        "fm2_abcd",
        "hwk_" + "a" * 64,
        "hwk_" + "!" * 20,
        "hwk_" + "A" * 9000,
        packed(b"", [], b""),
        packed(msgspec.msgpack.encode((2, b"key", b"nonce", 0)), [], b"tag"),
        packed(mint(KEY, NONCE, NOW).raw_header, [b"\x92\xa5later\x01"], b"tag"),
        packed(mint(KEY, NONCE, NOW).raw_header, [encode(Holder("a"))] * (MAX_CAVEATS + 1), b"tag"),
        packed(mint(KEY, NONCE, NOW).raw_header, "none", 5),
    ],
)
def test_a_text_that_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_text(text)


def test_a_token_cannot_be_narrowed_without_end() -> None:
    with pytest.raises(ValueError, match="at most 64 caveats"):
        made(*[Holder("a")] * (MAX_CAVEATS + 1))

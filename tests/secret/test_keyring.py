"""What each type of key can do, and what it refuses."""

import hashlib
import hmac
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.errors import BadRequest, Unprocessable
from hawker.secret.keyring import Key, KeyType, decrypt, encrypt, key_type, make, read

SEALING = (KeyType.XAES256GCM, KeyType.NACL_BOX, KeyType.NACL_SECRETBOX)
SIGNING = tuple(type for type in KeyType if type not in SEALING)
PUBLIC = (KeyType.ES256, KeyType.NACL_BOX, KeyType.NACL_SIGN)


def draw(count: int) -> bytes:
    return random.Random(count).randbytes(count)


def other(count: int) -> bytes:
    return random.Random(f"other {count}").randbytes(count)


@given(st.sampled_from(SEALING), st.binary(max_size=200))
def test_an_encrypted_value_can_be_decrypted_with_the_same_key_only(type: KeyType, data: bytes) -> None:
    key = make(type, draw)
    sealed = key.encrypt(data, b"", draw)
    assert key.decrypt(sealed, b"") == data
    for bad in (sealed[:-1], bytes([sealed[0] ^ 1]) + sealed[1:], b""):
        with pytest.raises(BadRequest, match="not made with this key"):
            key.decrypt(bad, b"")
    with pytest.raises(BadRequest, match="not made with this key"):
        make(type, other).decrypt(sealed, b"")


@given(st.sampled_from(SIGNING), st.binary(max_size=200))
def test_a_signature_is_of_the_key_and_the_data(type: KeyType, data: bytes) -> None:
    key = make(type, draw)
    signature = key.sign(data)
    key.verify(data, signature)
    for bad in (signature[:-1], bytes([signature[0] ^ 1]) + signature[1:], b""):
        with pytest.raises(BadRequest, match="not this key's"):
            key.verify(data, bad)
    for verifier, signed in ((make(type, other), data), (key, data + b"x")):
        with pytest.raises(BadRequest, match="not this key's"):
            verifier.verify(signed, signature)


@pytest.mark.parametrize(
    ("type", "name", "size"),
    [(KeyType.HS256, "sha256", 32), (KeyType.HS384, "sha384", 48), (KeyType.HS512, "sha512", 64)],
)
def test_a_mac_is_the_one_that_others_compute(type: KeyType, name: str, size: int) -> None:
    key = make(type, draw)
    assert len(key.value) == size and key.sign(b"data") == hmac.digest(key.value, b"data", name)


def test_nacl_auth_is_the_first_half_of_hmac_sha512() -> None:
    key = make(KeyType.NACL_AUTH, draw)
    assert key.sign(b"data") == hmac.new(key.value, b"data", hashlib.sha512).digest()[:32]


def test_associated_data_must_be_the_same() -> None:
    key = make(KeyType.XAES256GCM, draw)
    sealed = key.encrypt(b"data", b"context", draw)
    assert key.decrypt(sealed, b"context") == b"data"
    with pytest.raises(BadRequest):
        key.decrypt(sealed, b"other")


@pytest.mark.parametrize("type", [KeyType.NACL_BOX, KeyType.NACL_SECRETBOX])
def test_nacl_has_no_associated_data(type: KeyType) -> None:
    with pytest.raises(BadRequest, match="takes no associated_data"):
        make(type, draw).encrypt(b"data", b"context", draw)


@pytest.mark.parametrize("type", KeyType)
def test_only_pairs_have_a_public_key_and_no_key_shows_itself(type: KeyType) -> None:
    key = make(type, draw)
    assert (key.public is not None) == (type in PUBLIC) and key.public != key.value
    assert repr(key) == f"Key({type.value})"


@pytest.mark.parametrize("type", SEALING)
def test_a_sealing_key_signs_nothing(type: KeyType) -> None:
    key = make(type, draw)
    with pytest.raises(BadRequest, match=f"type {type} cannot sign"):
        key.sign(b"data")
    with pytest.raises(BadRequest, match="cannot"):
        key.verify(b"data", b"x")


@pytest.mark.parametrize("type", SIGNING)
def test_a_signing_key_seals_nothing(type: KeyType) -> None:
    key = make(type, draw)
    with pytest.raises(BadRequest, match=f"type {type} cannot encrypt"):
        key.encrypt(b"data", b"", draw)
    with pytest.raises(BadRequest, match=f"type {type} cannot decrypt"):
        key.decrypt(b"data", b"")


@pytest.mark.parametrize("type", KeyType)
def test_a_key_from_elsewhere_is_the_same_key(type: KeyType) -> None:
    key = make(type, draw)
    assert read(type, key.value) == key
    for bad in (b"", key.value[:-1], key.value + b"x"):
        with pytest.raises(Unprocessable, match="bytes"):
            read(type, bad)


def test_a_signing_key_can_come_in_nacls_own_form() -> None:
    key = make(KeyType.NACL_SIGN, draw)
    assert key.public is not None and read(KeyType.NACL_SIGN, key.value + key.public) == key
    with pytest.raises(Unprocessable, match="public half"):
        read(KeyType.NACL_SIGN, key.value + bytes(32))


@pytest.mark.parametrize("value", [bytes(32), b"\xff" * 32])
def test_a_number_out_of_range_is_no_key(value: bytes) -> None:
    with pytest.raises(Unprocessable, match="P-256"):
        read(KeyType.ES256, value)
    drawn = [b"\1" * 32, value]
    assert make(KeyType.ES256, lambda count: drawn.pop()).value == b"\1" * 32


def test_a_type_that_there_is_not_is_named() -> None:
    assert key_type("es256") is KeyType.ES256
    with pytest.raises(Unprocessable, match="type: 'rsa' is none of es256"):
        key_type("rsa")


def test_keys_are_values() -> None:
    assert Key(KeyType.HS256, b"x" * 32) == Key(KeyType.HS256, b"x" * 32)


NONCE = b"ABCDEFGHIJKLMNOPQRSTUVWX"


@pytest.mark.parametrize(
    ("key", "associated", "sealed"),
    [
        (b"\1" * 32, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (b"\3" * 32, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ],
)
def test_the_key_is_the_one_that_is_published(key: bytes, associated: bytes, sealed: str) -> None:
    """The two test vectors of the specification: the doubled block overflows for one key, and not for the other."""
    made = encrypt(key, NONCE, b"XAES-256-GCM", associated)
    assert made == NONCE + bytes.fromhex(sealed)
    assert decrypt(key, made, associated) == b"XAES-256-GCM"


@pytest.mark.parametrize("cut", [0, 12, 23, 24, 40])
def test_a_value_cut_short_or_of_other_data_is_refused(cut: int) -> None:
    made = encrypt(bytes(32), NONCE, b"XAES-256-GCM", b"a")
    for data, associated in ((made[:cut], b"a"), (made, b"b")):
        with pytest.raises(ValueError):
            decrypt(bytes(32), data, associated)

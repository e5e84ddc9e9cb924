import pytest

from hawker.worker.xaes import decrypt, encrypt

NONCE = b"ABCDEFGHIJKLMNOPQRSTUVWX"


@pytest.mark.parametrize(
    ("key", "associated", "sealed"),
    [
        (b"\1" * 32, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (b"\3" * 32, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ],
)
def test_it_is_the_one_that_is_published(key: bytes, associated: bytes, sealed: str) -> None:
    """The two test vectors of the specification: the doubled block overflows for one key, and not for the other."""
    made = encrypt(key, NONCE, b"XAES-256-GCM", associated)
    assert made == NONCE + bytes.fromhex(sealed)
    assert decrypt(key, made, associated) == b"XAES-256-GCM"


@pytest.mark.parametrize("cut", [0, 12, 23, 24, 40])
def test_what_is_cut_short_or_of_other_data_is_refused(cut: int) -> None:
    made = encrypt(bytes(32), NONCE, b"XAES-256-GCM", b"a")
    for data, associated in ((made[:cut], b"a"), (made, b"b")):
        with pytest.raises(ValueError):
            decrypt(bytes(32), data, associated)

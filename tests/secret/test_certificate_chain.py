"""What is taken for a certificate, and what is refused in words."""

import re
import ssl
from datetime import UTC, datetime
from math import gcd
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from hawker.errors import Unprocessable
from hawker.secret.certificate_chain import (
    MAX_PEM_BYTES,
    KeyPair,
    ReadCertificate,
    covers,
    hostname_of,
    read_certificate,
    self_signed,
    server_context,
)
from tests.certificates import issued, key_pem, new_key, root_pem

NOW = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
HOST = "shop.example.com"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("Shop.Example.COM.", HOST),
        ("*.example.com", "*.example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("*.bücher.example", "*.xn--bcher-kva.example"),
        ("localhost", "localhost"),
    ],
)
def test_a_host_name_is_kept_in_one_form(given: str, kept: str) -> None:
    assert hostname_of(given) == kept


@pytest.mark.parametrize(
    "given",
    ["", ".", "*", "*.com", "a..b", "a.*.com", "-a.com", "a b.com", "a/b", "192.0.2.1", "::1", "x" * 64 + ".com",
     ".".join(["abcdefgh"] * 40), "a\n.com", "a\0.com"],
)  # fmt: skip
def test_a_text_that_is_no_host_name_is_refused(given: str) -> None:
    with pytest.raises(Unprocessable, match="hostname"):
        hostname_of(given)


def test_a_wildcard_stands_for_one_label() -> None:
    assert covers("*.example.com", HOST) and covers(HOST, HOST) and covers("*.example.com", "*.example.com")
    assert not covers("*.example.com", "a.b.example.com") and not covers("*.example.com", "example.com")
    assert not covers("a.example.com", "*.example.com") and not covers("*.com", "*.example.com")


@pytest.mark.parametrize(
    ("kind", "said"), [("p256", "ecdsa"), ("p384", "ecdsa"), ("rsa2048", "rsa"), ("ed25519", "ecdsa")]
)
def test_a_chain_with_its_key_is_read(kind: str, said: str) -> None:
    chain, key = issued("*.example.com", key=new_key(kind))
    read = read_certificate(HOST, chain, key, NOW)
    assert (read.kind, read.authority) == (said, "Test Root")
    assert read.not_after == datetime(2099, 1, 1, tzinfo=UTC).timestamp()
    assert "BEGIN" not in repr(read.pair)


def taken(pair: tuple[str, str]) -> ReadCertificate:
    return read_certificate(HOST, pair[0], pair[1], NOW)


def test_the_common_name_counts_where_there_is_no_other() -> None:
    assert taken(issued(HOST, alternative=False))


def _swapped() -> tuple[str, str]:
    chain, key = issued(HOST)
    leaf = chain.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----\n")
    return chain[leaf:] + chain[:leaf], key


def _unrelated() -> tuple[str, str]:
    chain, key = issued(HOST)
    leaf = chain.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----\n")
    return chain[:leaf] + issued("other.example.com")[0], key


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: (issued(HOST)[0], issued(HOST)[1]), "private_key: is not the key"),
        (_swapped, "private_key: is not the key of the first"),
        (_unrelated, "did not issue the certificate before it"),
        (lambda: issued(HOST, end=datetime(2025, 1, 1, tzinfo=UTC)), "has expired at 2025-01-01"),
        (lambda: issued(HOST, begin=datetime(2031, 1, 1, tzinfo=UTC)), "good from 2031-01-01"),
        (lambda: issued("other.example.com"), "is for other.example.com, not for shop.example.com"),
        (lambda: issued(*(f"n{each}.example.com" for each in range(9))), "and 4 more"),
        (lambda: issued(HOST, key=new_key("p521")), "private_key: must be RSA"),
        (lambda: issued(HOST, key=new_key("rsa1024")), "private_key: must be RSA"),
        (lambda: ("", issued(HOST)[1]), "fullchain: no certificates"),
        (lambda: ("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", issued(HOST)[1]), "fullchain: no"),
        (lambda: (issued(HOST)[0], "key"), "private_key: no private key"),
        (lambda: (issued(HOST)[0] * 10, issued(HOST)[1]), "more than 10"),
        (lambda: ("x" * (MAX_PEM_BYTES + 1), issued(HOST)[1]), "fullchain: larger"),
        (lambda: (issued(HOST)[0], "x" * (MAX_PEM_BYTES + 1)), "private_key: larger"),
        (lambda: issued(HOST, *(f"{'a' * 60}.{each}.example.com" for each in range(200))), "larger than 16384"),
    ],
)
def test_a_certificate_that_cannot_be_served_is_refused_with_the_field_and_the_cause(made: Any, why: str) -> None:
    with pytest.raises(Unprocessable, match=re.escape(why)):
        taken(made())


def test_a_key_with_a_passphrase_is_refused() -> None:
    key = new_key()
    with pytest.raises(Unprocessable, match="passphrase"):
        read_certificate(HOST, issued(HOST, key=key)[0], key_pem(key, b"secret"), NOW)


@pytest.mark.parametrize("noise", [b"\0", "é".encode(), b"-----BEGIN CERTIFICATE-----\n" + b"A" * 400])
def test_noise_is_refused_and_nothing_else_happens(noise: bytes) -> None:
    with pytest.raises(Unprocessable):
        read_certificate(HOST, noise.decode("latin-1"), noise.decode("latin-1"), NOW)


def test_a_self_signed_pair_can_be_served_with_one_version() -> None:
    context = server_context(self_signed("hawker.invalid", NOW), ["TLSv1.3"])
    assert context.minimum_version is context.maximum_version is ssl.TLSVersion.TLSv1_3
    both = server_context(self_signed("hawker.invalid", NOW), ["TLSv1.3", "TLSv1.2"])
    assert (both.minimum_version, both.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert both.options & ssl.OP_NO_RENEGOTIATION
    assert both.num_tickets == 1


def test_a_pair_of_which_nothing_fits_is_refused_by_openssl() -> None:
    with pytest.raises(ssl.SSLError):
        server_context(KeyPair(chain=root_pem().encode(), key=issued(HOST)[1].encode()))


@pytest.mark.parametrize("text", ["a" * 257, "\u0300\u0316" * 200 + ".com", "b\u00fc." * 100])
def test_a_long_name_is_refused_before_anything_is_done_with_it(text: str) -> None:
    with pytest.raises(Unprocessable, match="longer than 253 characters"):
        hostname_of(text)


def _made_up(bits: int, wrong: int = 0) -> str:
    """An RSA key whose numbers fit together, but for `wrong`, and whose primes are none."""
    p, q, e = (1 << (bits // 2)) - 1, (1 << (bits // 2)) - 3, 65537
    while gcd(e, (p - 1) * (q - 1)) != 1 or gcd(p, q) != 1:
        q -= 2
    d = pow(e, -1, (p - 1) * (q - 1)) + wrong
    numbers = rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), rsa.RSAPublicNumbers(e, p * q))
    return key_pem(numbers.private_key(unsafe_skip_rsa_key_validation=True))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (_made_up(16_384), "must be RSA of 2048 to 4096"),
        (_made_up(2048, wrong=2), "do not fit together"),
        ("x" * 17_000, "larger than 16384 bytes"),
    ],
    ids=["large", "wrong", "long"],
)
def test_a_key_that_takes_long_to_check_is_refused_before_it_is_checked(key: str, text: str) -> None:
    with pytest.raises(Unprocessable, match=text):
        read_certificate(HOST, issued(HOST)[0], key, NOW)

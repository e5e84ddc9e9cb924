"""Which certificate a name finds, and what is kept open of them."""

import ssl
from pathlib import Path

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.edge.certificates import CertificateBook, may_show
from hawker.errors import Fault
from hawker.feed import API_APP, CERTIFICATE_KEY, SealedCertificate
from hawker.ids import AppName
from hawker.secret.certificate_chain import KeyPair
from hawker.secret.certificates import PLATFORM, owner_of
from hawker.vault import Vault
from tests.certificates import issued

KEY = b"k" * 32
PAST, LATER = 1.0, 4e9


def sealed(hostname: str, app: str = "shop", not_after: float = 0.0) -> SealedCertificate:
    chain, key = issued(hostname)
    pair = msgspec.msgpack.encode(KeyPair(chain=chain.encode(), key=key.encode()))
    vault = Vault(KEY, SystemClock())
    shut = vault.seal(owner_of(hostname), pair)
    return SealedCertificate(hostname=hostname, app=AppName(app), sealed=shut, not_after=not_after)


def book_of(folder: Path, *certificates: SealedCertificate) -> CertificateBook:
    (folder / CERTIFICATE_KEY).write_bytes(KEY)
    book = CertificateBook(folder, SystemClock())
    book.replace(certificates)
    return book


def test_the_exact_name_comes_before_the_wildcard_of_one_label(tmp_path: Path) -> None:
    book = book_of(tmp_path, sealed("a.example.com", "one"), sealed("*.example.com", "two"))
    assert (book.app_of("a.example.com"), book.app_of("b.example.com")) == ("one", "two")
    for name in ("", "example.com", "a.b.example.com", "com", "*.example.net", "."):
        assert book.app_of(name) is None


@pytest.mark.parametrize(
    ("exact_ends", "wide_ends", "wide_is", "found"),
    [
        (PAST, LATER, "shop", "*.example.com"),
        (PAST, LATER, "", "*.example.com"),
        (PAST, 0.0, "shop", "*.example.com"),
        (PAST, LATER, "other", "a.example.com"),
        (PAST, PAST, "shop", "a.example.com"),
        (LATER, LATER, "shop", "a.example.com"),
        (0.0, LATER, "shop", "a.example.com"),
    ],
)
def test_an_expired_certificate_gives_way_to_a_wildcard_of_its_app_or_the_platform(
    tmp_path: Path, exact_ends: float, wide_ends: float, wide_is: str, found: str
) -> None:
    exact, wide = sealed("a.example.com", not_after=exact_ends), sealed("*.example.com", wide_is, not_after=wide_ends)
    book = book_of(tmp_path, exact, wide)
    shown = book.find("a.example.com")
    assert shown is not None and shown.hostname == found
    assert book.app_of("a.example.com") == "shop", "the name stays the app's"


def test_a_context_is_made_once_and_forgotten_with_its_certificate(tmp_path: Path) -> None:
    certificate = sealed("a.example.com")
    book = book_of(tmp_path, certificate)
    first = book.context(certificate, (), ("http/1.1",))
    assert book.context(certificate, (), ("http/1.1",)) is first
    assert book.context(certificate, ("TLSv1.3",), ("http/1.1",)) is not first
    book.replace(())
    book.replace((certificate,))
    assert book.context(certificate, (), ("http/1.1",)) is not first


def test_contexts_have_a_bound_and_the_one_used_longest_ago_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.edge.certificates.KEPT_CONTEXTS", 2)
    book = book_of(tmp_path)
    first = book.context(None, (), ())
    second = book.context(None, (), ("a",))
    assert book.context(None, (), ()) is first
    book.context(None, (), ("b",))
    assert book.context(None, (), ()) is first and book.context(None, (), ("a",)) is not second


@pytest.mark.parametrize("key", [b"x" * 32, b"short", None])
def test_without_its_key_nothing_is_opened(tmp_path: Path, key: bytes | None) -> None:
    certificate = sealed("a.example.com")
    book = book_of(tmp_path, certificate)
    (tmp_path / CERTIFICATE_KEY).unlink()
    if key is not None:
        (tmp_path / CERTIFICATE_KEY).write_bytes(key)
    with pytest.raises(Fault):
        book.context(certificate, (), ())


def test_a_certificate_openssl_does_not_take_is_said_and_not_kept(tmp_path: Path) -> None:
    pair = msgspec.msgpack.encode(KeyPair(chain=b"no chain", key=b"no key"))
    bad = SealedCertificate(
        hostname="a.example.com",
        app=AppName("shop"),
        sealed=Vault(KEY, SystemClock()).seal(owner_of("a.example.com"), pair),
    )
    book = book_of(tmp_path, bad)
    for _ in range(2):
        with pytest.raises(Fault, match="cannot be used"):
            book.context(bad, (), ())


def test_the_certificate_for_hosts_without_one_names_nobody(tmp_path: Path) -> None:
    assert isinstance(book_of(tmp_path).context(None, (), ()), ssl.SSLContext)


def test_a_certificate_is_shown_for_its_own_app_and_the_platforms_for_the_app_that_is_named() -> None:
    own, platform = (SealedCertificate(hostname="*.x.com", app=AppName(app), sealed=b"") for app in ("shop", PLATFORM))
    assert [may_show(own, AppName(app), "blog.x.com") for app in ("shop", "blog", API_APP)] == [True, False, True]
    assert [may_show(platform, AppName(app), "blog.x.com") for app in ("shop", "blog", API_APP)] == [False, True, True]
    assert not may_show(own, None, "shop.x.com")

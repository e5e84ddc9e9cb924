"""What the judges of private networks and host names find, and what they let pass."""

import base64

import pytest

from hawker.feed import SealedCertificate
from hawker.ids import AppName
from hawker.proof.network_checks import (
    doubled_ways,
    foreign_answers,
    forms_of,
    left_shown,
    lost_answers,
    shared_numbers,
    shown_secrets,
    wrong_answers,
    wrong_ways,
    wrongly_shown,
)
from hawker.proof.violation import Invariant
from hawker.record.app import AppRecord, CertificateRecord

NOW, LATER = 100.0, 200.0
NAME = "a.example.com"


def app(name: str, org: str, number: int) -> AppRecord:
    return AppRecord(id=name, number=1, name=AppName(name), org=org, network="n", network_id=number, created_at=1.0)


def sealed(hostname: str, owner: str = "shop", not_after: float = LATER) -> SealedCertificate:
    return SealedCertificate(hostname=hostname, app=AppName(owner), sealed=b"", not_after=not_after)


def kept(hostname: str, owner: str = "shop", not_after: float = LATER, created_at: float = 1.0) -> CertificateRecord:
    return CertificateRecord(
        hostname=hostname,
        app=AppName(owner),
        sealed=b"",
        kind="ecdsa",
        authority="",
        not_after=not_after,
        created_at=created_at,
        updated_at=created_at,
    )


def test_a_number_of_two_networks_is_found_and_two_apps_of_one_share_theirs() -> None:
    assert list(shared_numbers([app("a", "acme", 7), app("b", "acme", 7), app("c", "bolt", 8)])) == []
    (found,) = shared_numbers([app("a", "acme", 7), app("c", "bolt", 7)])
    assert found.invariant is Invariant.OWN_NUMBER and "acme/n and bolt/n" in found.what


def test_an_answer_of_another_network_is_found() -> None:
    assert list(foreign_answers(7, "a.internal", ["fdaa:0:7::2"])) == []
    (found,) = foreign_answers(7, "a.internal", ["fdaa:0:7::2", "fdaa:0:8::2"])
    assert found.invariant is Invariant.NAMED and "fdaa:0:8::2" in found.what


def test_an_answer_on_a_lost_host_is_found() -> None:
    assert list(lost_answers("a.internal", ["fdaa::2"], set())) == []
    assert len(list(lost_answers("a.internal", ["fdaa::2"], {"fdaa::2"}))) == 1


def test_an_answer_too_much_and_one_that_lacks_are_found() -> None:
    assert list(wrong_answers("a.internal", ["fdaa::2"], ["fdaa::2"])) == []
    assert len(list(wrong_answers("a.internal", ["fdaa::2"], ["fdaa::3"]))) == 2


def test_an_address_at_two_peers_is_found() -> None:
    assert list(doubled_ways("one", {"k": ["fdaa::/112"], "l": ["fdab::/112"]})) == []
    assert len(list(doubled_ways("one", {"k": ["fdaa::/112"], "l": ["fdaa::/112"]}))) == 1


def test_a_way_that_is_kept_one_that_lacks_and_one_to_another_host_are_found() -> None:
    assert list(wrong_ways("one", {"a": "k"}, {"a": "k"})) == []
    found = list(wrong_ways("one", {"a": "k", "b": "k"}, {"a": "l", "c": "k"}))
    assert [each.what.split()[3] for each in found] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("shown", "good_for", "there", "count"),
    [
        (sealed(NAME), [NAME], [], 0),
        (sealed(NAME), ["b.example.com"], [], 1),
        (sealed("*.example.com"), ["*.example.com"], [], 0),
        (sealed(NAME, not_after=NOW), [NAME], [sealed("*.example.com")], 1),
        (sealed(NAME, not_after=NOW), [NAME], [sealed("*.example.com", "other")], 0),
        (sealed(NAME, not_after=NOW), [NAME], [sealed(NAME, not_after=NOW)], 0),
    ],
)
def test_a_certificate_for_other_names_or_one_that_has_expired_is_found(
    shown: SealedCertificate, good_for: list[str], there: list[SealedCertificate], count: int
) -> None:
    assert len(list(wrongly_shown("one", NAME, shown, good_for, there, NOW))) == count


@pytest.mark.parametrize(
    ("shown", "records", "count"),
    [
        (None, [], 0),
        (None, [kept(NAME)], 1),
        (sealed(NAME), [kept(NAME)], 0),
        (sealed(NAME), [], 1),
        (sealed(NAME, "thief"), [kept(NAME)], 1),
        (sealed(NAME, not_after=NOW), [kept(NAME, not_after=NOW)], 0),
        (sealed(NAME, not_after=NOW), [kept(NAME, not_after=NOW), kept(NAME, created_at=2.0)], 1),
        (sealed(NAME, not_after=NOW), [kept(NAME, not_after=NOW), kept("*.example.com", "other")], 0),
    ],
)
def test_at_rest_what_was_removed_is_not_shown_and_the_one_that_is_good_is(
    shown: SealedCertificate | None, records: list[CertificateRecord], count: int
) -> None:
    assert len(list(left_shown("one", NAME, shown, records, NOW))) == count


SECRET = bytes(range(100, 132))


@pytest.mark.parametrize(
    "shown",
    [SECRET, SECRET.hex().encode(), *(base64.b64encode(b"x" * before + SECRET + b"y") for before in range(4))],
    ids=["plain", "hex", "base64-0", "base64-1", "base64-2", "base64-3"],
)
def test_a_secret_is_found_in_every_form_and_a_sealed_one_is_not(shown: bytes) -> None:
    forms = forms_of(SECRET)
    found = list(shown_secrets("one", [("a row", b"before " + shown), ("a log", SECRET[1:])], forms))
    assert [(each.about, each.what) for each in found] == [("one", "a private key is in clear in a row")]

"""Answers in the words of flyctl's other services."""

import pytest

from hawker.flyfront.shapes import address_of, number_of, organization, principal


@pytest.mark.parametrize(
    ("holder", "address"),
    [("ann@example.com", "ann@example.com"), ("root", "root@hawker.internal"), ("", "nobody@hawker.internal")],
)
def test_a_holder_is_shown_as_an_address(holder: str, address: str) -> None:
    assert address_of(holder) == address


def test_an_organization_has_the_same_number_everywhere() -> None:
    assert number_of("acme") == number_of("acme") != number_of("acme2")
    assert organization("acme").internal_numeric_id == number_of("acme") > 0


def test_one_organization_is_personal() -> None:
    assert organization("personal").personal and not organization("acme").personal


def test_a_narrowed_token_is_no_user() -> None:
    assert principal("ci", narrowed=True)["__typename"] == "Macaroon"
    assert principal("root", narrowed=False)["__typename"] == "User"

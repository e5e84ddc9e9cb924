import re
from random import Random

import pytest

from hawker.app import app_name, machine_name, network_name, new_machine_name
from hawker.errors import Unprocessable

HOSTILE = ["", "../x", "a/b", "a b", "-a", ".a", "a\n", "a" * 64, "a\0", "ä"]


@pytest.mark.parametrize("text", ["a", "web", "0a-b", "a" * 63])
def test_an_app_name_is_lower_case_digits_and_dashes(text: str) -> None:
    assert app_name(text) == text


@pytest.mark.parametrize("text", [*HOSTILE, "Web", "a_b", "a.b"])
def test_a_bad_app_name_is_refused_with_the_text_that_clients_know(text: str) -> None:
    with pytest.raises(Unprocessable, match=r"^Validation failed: Name under 63 chars using numbers, lowercase"):
        app_name(text)


@pytest.mark.parametrize("text", ["web", "Web_1.blue", "a" * 63])
def test_a_machine_name_is_wider_than_an_app_name(text: str) -> None:
    assert machine_name(text) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_bad_machine_name_is_refused(text: str) -> None:
    with pytest.raises(Unprocessable, match="is not a machine name"):
        machine_name(text)


def test_no_network_is_the_default_one() -> None:
    assert network_name(None) == network_name("") == network_name("default") == "default"


@pytest.mark.parametrize("text", ["1a", "a b", "a/b", "a" * 64])
def test_a_bad_network_name_is_refused(text: str) -> None:
    with pytest.raises(Unprocessable, match="network"):
        network_name(text)


def test_a_new_machine_name_is_a_host_name_and_rarely_the_same() -> None:
    random = Random(1).random
    names = {new_machine_name(random) for _ in range(200)}
    assert len(names) > 190
    assert all(re.fullmatch(r"[a-z]+-[a-z]+-\d{4}", name) for name in names)

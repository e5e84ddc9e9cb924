"""The conformance page is what the code and the tables say; its last run is from `make conformance`."""

import pytest

from hawker.api.routes import UNSERVED
from tests.conformance.differences import DIFFERENCES
from tests.conformance.page import LAST_RUN, PAGE, REFUSED, from_the_code, official


def test_the_page_is_up_to_date() -> None:
    written, _, run = PAGE.read_text().partition(LAST_RUN)
    assert written.rstrip() == from_the_code().rstrip(), "run `make conformance`"
    assert "| not_a_server_error |" in run


def test_all_differences_are_on_it() -> None:
    assert len(DIFFERENCES) == 18 and "".join(DIFFERENCES) == "abcdefghijklmnopqr"


@pytest.mark.parametrize("path", sorted(official()["paths"]))
def test_every_path_is_served_or_refused_by_name(path: str) -> None:
    line = next(line for line in from_the_code().splitlines() if f"`{path}`" in line)
    assert (
        line.endswith("| yes |")
        or any(f"501: {each.what}" in line for each in UNSERVED)
        or any(each in line for each in REFUSED.values())
    )

"""Cursors: what was given out comes back, and nothing else is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.cursor import after_of, cursor_after
from hawker.errors import BadRequest


@given(st.text(st.characters(codec="utf-8")))
def test_a_cursor_comes_back_as_the_key_that_it_was_made_of(key: str) -> None:
    assert after_of(cursor_after(key)) == key


def test_no_cursor_is_before_everything() -> None:
    assert after_of(None) == after_of("") == ""


@pytest.mark.parametrize("text", ["!", "a", "gA==", "ÿ", "MQ==\n", "../../etc"])
def test_what_nobody_gave_out_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        after_of(text)

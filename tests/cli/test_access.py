from hawker.cli.access import Access
from hawker.log import Secret


def test_a_token_is_not_shown_by_accident() -> None:
    assert "hunter2" not in repr(Access("http://x", Secret("hunter2")))

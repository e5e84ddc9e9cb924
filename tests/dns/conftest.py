"""What tests of names share."""

import pytest

from hawker.dns import forward


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No question to a server of the world is asked again, or given up, however busy this host is."""
    monkeypatch.setattr(forward, "_TRY_S", 600.0)

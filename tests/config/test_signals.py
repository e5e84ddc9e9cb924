import pytest

from hawker.config.signals import signal_name, signal_number


@pytest.mark.parametrize("value", ["SIGTERM", "TERM", "term", "sigterm", 15, "15"])
def test_a_signal_is_named_in_every_way_that_clients_use(value: str | int) -> None:
    assert signal_number(value) == 15 and signal_name(value) == "SIGTERM"


@pytest.mark.parametrize("value", ["", "SIG", "SIGNOPE", 0, -1, 4096, "٩", "9 ", "SIG_IGN"])
def test_what_is_no_signal_is_refused(value: str | int) -> None:
    with pytest.raises(ValueError, match="is not a signal"):
        signal_number(value)

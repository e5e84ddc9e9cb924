"""`hawker edge` where no node ever was, and signals while it begins anew."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hawker.edge import commands
from hawker.edge.commands import TakenOver, command
from hawker.edge.warden import Warden
from hawker.errors import CannotStart
from hawker.place import Place

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def test_a_directory_without_a_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="hawker up"):
        CliRunner().invoke(command, ["--data-dir", str(tmp_path)], catch_exceptions=False)


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Those of this process are as before afterwards."""
    before = {each: signal.getsignal(each) for each in SIGNALS}
    yield
    wakes = signal.set_wakeup_fd(-1)
    for each, handler in before.items():
        signal.signal(each, handler)
    os.close(wakes)


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize(
    ("late", "begins_anew"),
    [((), True), ((signal.SIGHUP,), True), ((signal.SIGTERM,), False), ((signal.SIGHUP, signal.SIGINT), False)],
)
def test_a_signal_to_end_is_heeded_while_the_edge_process_ends(
    late: tuple[signal.Signals, ...], begins_anew: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Renewing(Warden):
        """Its edge process has ended, and so much came meanwhile."""

        def run(self, waking: socket.socket) -> int:
            self.renewing = True
            for each in late:
                signal.raise_signal(each)
            return 0

    begun: list[str] = []
    monkeypatch.setattr(commands, "Warden", Renewing)
    monkeypatch.setattr(os, "execv", lambda program, argv: begun.append(program))
    place = Place(tmp_path).edge
    place.mkdir()
    lock = os.open(place / "lock", os.O_RDWR | os.O_CREAT)
    taken = msgspec.json.encode(TakenOver(lock=lock, doors=())).decode()
    try:
        words = ["--data-dir", str(tmp_path), "--taken-over", taken]
        CliRunner().invoke(command, words, catch_exceptions=False)
    finally:
        os.close(lock)
    assert bool(begun) is begins_anew

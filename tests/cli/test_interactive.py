import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.cli.attach import Sitting
from hawker.cli.terminal import Descriptors
from hawker.config import Init
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import LAUNCHED, STARTED, FakeNode, chunk, exit_event


@pytest.fixture(autouse=True)
def _no_input(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """pytest's own stdin has no descriptor."""
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield


def test_run_with_input_sits_at_the_machine_and_has_its_status(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("run", "-i", "web:3", "sh", "-c", "x")
    assert said.status == 5
    config = node.call("create_machine").body.config
    assert config.init == Init(cmd=("sh", "-c", "x"), stdin=True)
    assert config.restart.policy == "no"


def test_a_machine_that_ended_before_shows_its_output(node: FakeNode, hawker: Hawker) -> None:
    node.fate = (State.STOPPED, (exit_event(3), STARTED, LAUNCHED))
    node.chunks = (chunk(0, b"said\n"),)
    said = hawker("run", "-it", "web:3")
    assert (said.status, said.out) == (3, "said\n")


def test_a_machine_that_ends_before_anybody_sits_there_shows_its_output_and_status(
    node: FakeNode, hawker: Hawker
) -> None:
    node.too_late = 3
    node.chunks = (chunk(0, b"said\n"),)
    said = hawker("run", "-i", "web:3")
    assert (said.status, said.out, said.err) == (3, "said\n", "")


def test_detached_only_the_streams_are_opened(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("run", "-d", "-it", "web:3").status == 0
    assert node.call("create_machine").body.config.init == Init(stdin=True, tty=True)
    assert "machine_attach" not in node.calls


def test_without_a_window_here_none_is_told() -> None:
    with open("/dev/null", "r+b") as null:
        sitting = Sitting(Descriptors(None, null.fileno(), null.fileno()), terminal=True)
        assert sitting.window == (0, 0) and not sitting.is_raw

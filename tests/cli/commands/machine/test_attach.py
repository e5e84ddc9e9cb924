import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.config import Init, MachineConfig
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


@pytest.fixture(autouse=True)
def _no_input(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """pytest's own stdin has no descriptor."""
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield


def test_a_machine_without_open_input_says_what_to_do(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    said = hawker("attach", "web")
    assert said.status == 1 and "order it with -i" in said.err


def test_its_end_and_status_are_the_commands_own(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web", config=MachineConfig(image="a", init=Init(stdin=True))))
    assert hawker("attach", "web").status == 5
    assert "machine_attach" in node.calls

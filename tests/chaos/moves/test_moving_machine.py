"""How a trial of moves waits for its machine, and finds where it is; moves of it are in test_move_trial.py."""

from pathlib import Path
from typing import cast

import pytest

from hawker.api.client import Client
from hawker.chaos.daemon import Daemon
from hawker.chaos.fleet.network_lab import LabHost
from hawker.chaos.fleet.real_fleet import LabFleet, LabNode
from hawker.chaos.moves.moving_machine import WITHIN_S, MovingMachine
from hawker.clock import Clock, ManualClock
from hawker.errors import DeadlineExceeded, Unavailable

pytestmark = pytest.mark.anyio


class Street:
    """Stands for a fleet of two."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.stalls = []
        for name in ("first", "second"):
            (directory / name).mkdir()
            daemon = Daemon(directory / name, clock, driver="process")
            self.stalls.append(LabNode(cast(LabHost, None), daemon))


def moving(directory: Path, clock: Clock) -> MovingMachine:
    found = MovingMachine(clock, cast(LabFleet, Street(directory, clock)), cast(Client, None))
    found.volume = "vol_1"
    return found


async def test_answer_of_a_node_that_is_away_is_waited_for(tmp_path: Path) -> None:
    asked = list[int]()

    async def ask() -> str | None:
        asked.append(len(asked))
        if len(asked) == 1:
            raise Unavailable("it boots")
        return "here" if len(asked) == 3 else None

    assert await moving(tmp_path, ManualClock()).patiently(ask) == "here"


async def test_wait_for_what_never_comes_ends_and_says_why(tmp_path: Path) -> None:
    async def ask() -> bool:
        raise Unavailable("it boots")

    clock = ManualClock()
    began = clock.monotonic()
    with pytest.raises(DeadlineExceeded, match="it boots"):
        await moving(tmp_path, clock).patiently(ask)
    assert clock.monotonic() - began >= WITHIN_S


async def test_source_of_the_next_move_has_the_volumes_file(tmp_path: Path) -> None:
    machine = moving(tmp_path, ManualClock())
    file = machine.fleet.stalls[1].daemon.place.volumes / "vol_1/disk"
    file.parent.mkdir(parents=True)
    file.touch()
    assert machine.ends() == (machine.fleet.stalls[1], machine.fleet.stalls[0])

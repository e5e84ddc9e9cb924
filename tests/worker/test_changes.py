import anyio
import pytest

from hawker.ids import MachineId
from hawker.sim.harness.loop import LoopClock
from hawker.worker.changes import Changes

pytestmark = pytest.mark.anyio
ONE, OTHER = MachineId("1"), MachineId("2")


async def test_only_a_change_of_the_machine_wakes_who_waits_for_it() -> None:
    changes, answers = Changes(), [None, None, "there"]
    asked = 0

    def check() -> str | None:
        nonlocal asked
        asked += 1
        return answers[asked - 1]

    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            assert await changes.until(ONE, check) == "there"

        tasks.start_soon(wait)
        for expected, machine_id in ((1, OTHER), (1, ONE), (2, ONE)):
            await LoopClock().sleep(1)
            assert asked == expected
            changes.notify(machine_id)
    assert asked == 3


async def test_all_who_wait_are_woken() -> None:
    changes = Changes()
    there: list[int] = []
    woken: list[str] = []

    async def wait(name: str) -> None:
        await changes.until(ONE, lambda: True if there else None)
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "a")
        tasks.start_soon(wait, "b")
        await LoopClock().sleep(1)
        there.append(1)
        changes.notify(ONE)
    assert woken == ["a", "b"]


async def test_who_gives_up_leaves_nothing_behind() -> None:
    changes = Changes()
    with anyio.move_on_after(1):
        await changes.until(ONE, lambda: None)
    assert changes.waiting == 0


def test_listeners_hear_of_every_change() -> None:
    changes = Changes()
    heard: list[MachineId] = []
    changes.listen(heard.append)
    changes.notify(ONE)
    changes.notify(OTHER)
    assert heard == [ONE, OTHER]

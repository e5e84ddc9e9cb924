"""The tasks that serve connections and requests."""

import anyio

from hawker.edge.app_figures import AppFigures
from hawker.edge.requester import RequestTasks
from hawker.edge.visits import Counters


async def test_a_mistake_in_a_task_is_counted_and_costs_no_other() -> None:
    counters, over = Counters({}, AppFigures()), anyio.Event()
    tasks = RequestTasks(counters)

    async def fail() -> None:
        raise ValueError("a mistake")

    async def go_on() -> None:
        await anyio.lowlevel.checkpoint()
        over.set()

    tasks.spawn(fail)
    tasks.spawn(go_on)
    await over.wait()
    assert counters.values == {"mistakes": 1}


async def test_tasks_have_ended_when_their_process_has_those_too_that_a_task_begins_at_its_end() -> None:
    ended = list[str]()
    tasks, begun = RequestTasks(Counters({}, AppFigures())), anyio.Event()

    async def first() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            tasks.spawn(anyio.sleep_forever)
            ended.append("first")

    async with anyio.create_task_group() as group:
        group.start_soon(tasks.serve)
        tasks.spawn(first)
        await begun.wait()
        group.cancel_scope.cancel()
    assert ended == ["first"] and not tasks._running

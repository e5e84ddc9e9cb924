import anyio
import anyio.lowlevel
import pytest

from hawker.errors import OverShare
from hawker.fair.turns import NODE, Share, Turns

pytestmark = pytest.mark.anyio


def share(total: int = 4, each: int = 2, reserve: int = 1, waiting: int = 100) -> Share:
    return Share(
        name="seats", total=total, each=each, reserve=reserve, waiting=waiting, key="app", over="come back later"
    )


async def test_key_has_its_bound_and_the_node_its_reserve() -> None:
    turns = Turns(share())
    for key in ("a", "a", "b"):
        await turns.take(key)
    for key in ("a", "b", "c"):
        with pytest.raises(OverShare), turns.hold_now(key):
            pytest.fail("over the bound")
    with turns.hold_now(NODE):
        assert turns.view().used == 4


async def test_slots_that_the_node_uses_come_out_of_its_reserve_first() -> None:
    turns = Turns(share(total=4, each=3, reserve=1))
    await turns.take(NODE)
    for _ in range(3):
        await turns.take("a")
    assert turns.view().used == 4
    turns.give_back("a")
    with turns.hold_now(NODE), pytest.raises(OverShare), turns.hold_now("b"):
        pytest.fail("the node has what is left")


async def test_keys_take_turns_however_many_wait_of_one() -> None:
    turns, order = Turns(share(total=2, each=1, reserve=1)), []

    async def wanted(key: str) -> None:
        async with turns.hold(key):
            order.append(key)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        await turns.take("x")
        for key in ["a"] * 5 + ["b", "c"]:
            tasks.start_soon(wanted, key)
        await anyio.wait_all_tasks_blocked()
        turns.give_back("x")
    assert order == ["a", "b", "c", "a", "a", "a", "a"]
    assert turns.view().used == turns.view().waiting == turns.view().keys == 0


async def test_queue_of_one_key_has_a_size_and_others_still_wait() -> None:
    turns = Turns(share(total=1, each=1, reserve=0, waiting=1))
    await turns.take("x")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turns.take, "a")
        tasks.start_soon(turns.take, "b")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(OverShare, match=r"seats: come back later \(1 for one app\)"):
            await turns.take("a")
        tasks.cancel_scope.cancel()
    assert (turns.view().used, turns.view().waiting) == (1, 0)


async def test_waiter_that_is_cancelled_in_its_turn_gives_it_to_the_next() -> None:
    turns = Turns(share(total=1, each=1, reserve=0))
    await turns.take("x")
    got = anyio.Event()

    async def second() -> None:
        await turns.take("b")
        got.set()

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as first:

            async def go_away() -> None:
                turns.give_back("x")  # `a` has its turn now, and is cancelled before it runs
                first.cancel()

            tasks.start_soon(second)
            tasks.start_soon(go_away)
            async with turns.hold("a"):
                await anyio.sleep_forever()
        with anyio.fail_after(60):
            await got.wait()
    assert turns.view().used == 1

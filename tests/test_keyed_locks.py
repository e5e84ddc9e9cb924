"""Facts about locks by key."""

import anyio
import pytest

from hawker.keyed_locks import KeyedLocks

pytestmark = pytest.mark.anyio


async def test_second_holder_waits_and_other_keys_do_not() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    order: list[str] = []

    async def second() -> None:
        async with locks.hold("a"):
            order.append("second")

    async with anyio.create_task_group() as group, locks.hold("a"):
        group.start_soon(second)
        await anyio.wait_all_tasks_blocked()
        async with locks.hold("b"):
            order.append("first")
    assert order == ["first", "second"]


async def test_lock_is_forgotten_when_nobody_needs_it() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    async with locks.hold("a"):
        assert locks.busy() == {"a"}
    assert locks.busy() == frozenset()


async def test_failure_gives_the_lock_back() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    with pytest.raises(ValueError, match="no"):
        async with locks.hold("a"):
            raise ValueError("no")
    with anyio.fail_after(60):
        async with locks.hold("a"):
            assert locks.busy() == {"a"}


async def test_waiter_that_gives_up_leaves_nothing() -> None:
    locks: KeyedLocks[str] = KeyedLocks()

    async def impatient() -> None:
        async with locks.hold("a"):
            pytest.fail("two hold the lock")

    async with locks.hold("a"), anyio.create_task_group() as group:
        group.start_soon(impatient)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert locks.busy() == frozenset()

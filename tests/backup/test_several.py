"""Many things are taken a few at a time, and a failure ends them all."""

import anyio
import pytest

from hawker.backup.several import each_of
from hawker.errors import Unavailable

pytestmark = pytest.mark.anyio


async def test_things_are_each_taken_once_and_no_more_than_so_many_at_once() -> None:
    under_way, most, taken = set[int](), 0, list[int]()

    async def take(thing: int) -> None:
        nonlocal most
        under_way.add(thing)
        most = max(most, len(under_way))
        await anyio.lowlevel.checkpoint()
        under_way.remove(thing)
        taken.append(thing)

    await each_of(range(20), 3, take)
    assert (sorted(taken), most) == (list(range(20)), 3)
    await each_of([], 3, take)


async def test_first_failure_is_raised_once_nothing_is_under_way() -> None:
    ended = set[int]()

    async def take(thing: int) -> None:
        try:
            if thing == 1:
                raise Unavailable("the place is gone")
            await anyio.Event().wait()
        finally:
            ended.add(thing)

    with pytest.raises(Unavailable, match="gone"):
        await each_of(range(20), 3, take)
    assert ended <= {0, 1, 2} and 1 in ended

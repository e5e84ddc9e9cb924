from collections.abc import Iterator

import pytest

from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.runtime.vmm import balloon

pytestmark = pytest.mark.anyio


async def _go(before: int, wanted: int, steps: list[int]) -> list[int]:
    """What is left of the guest's steps once it has followed; it stays at the last."""
    left: Iterator[int] = iter(steps)
    last = before

    async def actual() -> int:
        nonlocal last
        last = next(left, last)
        return last

    await balloon.followed(actual, before, wanted, 64, SystemClock())
    return list(left)


@pytest.mark.parametrize(
    ("before", "wanted", "steps", "left"),
    [
        (256, 128, [256, 200, 128, 7], [7]),
        (256, 128, [256, 120, 7], [7]),
        (128, 256, [128, 256, 7], [7]),
        (128, 128, [128, 7], [7]),
    ],
)
async def test_an_inflation_returns_once_the_guest_is_there_or_past_it(
    before: int, wanted: int, steps: list[int], left: list[int]
) -> None:
    assert await _go(before, wanted, steps) == left


async def test_a_guest_that_does_not_follow_is_named_with_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balloon, "FOLLOWS_S", 0.2)
    with pytest.raises(Unavailable, match=r"not gone to 64 MB of memory within 0\.2 s"):
        await _go(256, 128, [256, 200])

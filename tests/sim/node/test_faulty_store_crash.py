"""What a crash leaves, on both media; and the real store under the loop's own writer keeps its contract."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hawker.sim.node.faulty_store import CrashableFile, CrashableMemory, CrashableStore
from hawker.store.contract import Bucket, Durability, Tx

pytestmark = pytest.mark.anyio
NUMBERS = Bucket("numbers", int)


@pytest.fixture(params=["twin", "file"])
def crashable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CrashableStore]:
    made: CrashableStore = CrashableMemory() if request.param == "twin" else CrashableFile(tmp_path)
    yield made
    made.close()


def put(key: str) -> Callable[[Tx], None]:
    return lambda tx: tx.put(NUMBERS, key, 1)


def keys(crashable: CrashableStore) -> list[str]:
    return [key for key, _ in crashable.store.scan(NUMBERS)]


async def fill(crashable: CrashableStore) -> None:
    await crashable.store.write(put("durable"))
    for key in ("ordered 1", "ordered 2"):
        await crashable.store.write(put(key), Durability.ORDERED)


async def test_a_kill_loses_nothing(crashable: CrashableStore) -> None:
    await fill(crashable)
    crashable.crash(1.0)
    assert keys(crashable) == ["durable", "ordered 1", "ordered 2"]


async def test_a_power_cut_loses_what_was_not_durable(crashable: CrashableStore) -> None:
    await fill(crashable)
    crashable.crash(0.0)
    assert keys(crashable) == ["durable"]


async def test_a_power_cut_may_leave_a_part_and_never_a_later_one(crashable: CrashableStore) -> None:
    await fill(crashable)
    crashable.crash(0.5)
    assert keys(crashable) in (["durable"], ["durable", "ordered 1"])


async def test_lives_follow_each_other(crashable: CrashableStore) -> None:
    for life in range(3):
        await crashable.store.write(put(f"life {life}"))
        await crashable.store.write(put(f"lost {life}"), Durability.ORDERED)
        crashable.crash(0.0)
    assert keys(crashable) == ["life 0", "life 1", "life 2"]


async def test_a_log_that_was_begun_anew_is_told_from_the_old_one(tmp_path: Path) -> None:
    crashable = CrashableFile(tmp_path)
    for number in range(1200):  # beyond the size at which the log is copied into the file
        await crashable.store.write(put(f"{number:04d}"), Durability.ORDERED)
    await crashable.store.write(put("durable"))
    await crashable.store.write(put("lost"), Durability.ORDERED)
    crashable.crash(0.0)
    assert len(keys(crashable)) == 1201 and "lost" not in keys(crashable)
    crashable.close()

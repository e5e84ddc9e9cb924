import anyio
import pytest

from hawker.api.shutdown import Shutdown
from hawker.errors import Unavailable

pytestmark = pytest.mark.anyio


async def test_a_stop_ends_what_runs_with_an_error_that_says_so() -> None:
    shutdown = Shutdown()
    begun = anyio.Event()

    async def call() -> None:
        with pytest.raises(Unavailable, match="the node is stopping"), shutdown.until_stop():
            begun.set()
            await anyio.sleep_forever()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await begun.wait()
            shutdown.stop()


async def test_a_call_that_begins_after_the_stop_ends_at_its_first_wait() -> None:
    shutdown = Shutdown()
    shutdown.stop()
    with pytest.raises(Unavailable), shutdown.until_stop():
        await anyio.lowlevel.checkpoint()


async def test_a_call_that_has_ended_is_forgotten() -> None:
    shutdown = Shutdown()
    with shutdown.until_stop():
        pass
    shutdown.stop()


async def test_a_cancel_from_outside_stays_a_cancel() -> None:
    shutdown = Shutdown()
    with anyio.CancelScope() as scope:
        scope.cancel()
        with shutdown.until_stop():
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught

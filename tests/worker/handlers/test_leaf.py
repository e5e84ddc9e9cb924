import anyio
import pytest

from hawker.errors import BadRequest, NotFound
from hawker.worker.handlers.leaf import one_error

pytestmark = pytest.mark.anyio


async def _fail(error: Exception) -> None:
    raise error


async def test_one_error_comes_out_as_itself() -> None:
    with pytest.raises(NotFound), one_error():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_fail, NotFound("gone"))


def test_several_errors_stay_together() -> None:
    with pytest.raises(ExceptionGroup), one_error():
        raise ExceptionGroup("two", [NotFound("gone"), BadRequest("bad")])

import pytest

from hawker.api.deadline import DEADLINE_HEADER, read_deadline, written_deadline
from hawker.api.route import Call, NoParams, NoQuery, Tag, Unary
from hawker.errors import BadRequest
from tests.api.serving import Fake, served

WAIT = Unary(
    name="wait",
    method="POST",
    path="/hawker/v1/wait",
    params=NoParams,
    query=NoQuery,
    body=type(None),
    response=type(None),
    tag=Tag.NODE,
    summary="Wait",
    timeout_s=7.0,
)


@pytest.mark.parametrize(("text", "left_s"), [(None, None), ("", None), ("0", 0.0), ("1500", 1.5)])
def test_what_is_left_is_read(text: str | None, left_s: float | None) -> None:
    assert read_deadline(text) == left_s


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "1" * 10, "²"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="Hawker-Deadline-Ms"):
        read_deadline(text)


def test_it_reads_what_it_writes() -> None:
    assert [read_deadline(written_deadline(left_s)) for left_s in (-1.0, 0.25, 60.0)] == [0.0, 0.25, 60.0]


@pytest.mark.anyio
async def test_a_handler_knows_how_long_its_caller_waits() -> None:
    fake = Fake()
    async with served(fake.handlers([WAIT]), [WAIT]) as node:
        await node.client.call(WAIT)
        await node.client.call(WAIT, timeout_s=30.5)
        async with node.http.post(WAIT.path) as response:
            assert response.status == 200
        async with node.http.post(WAIT.path, headers={DEADLINE_HEADER: "soon"}) as response:
            assert response.status == 400
    calls: list[Call[NoParams, NoQuery, None]] = fake.calls
    assert [call.deadline_s for call in calls] == [7.0, 30.5, None]

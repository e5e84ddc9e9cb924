import http

import anyio
import pytest

from hawker.errors import BadRequest, CannotStart, Fault, HawkerError, NoRoom, NotFound, WrongState, one_error, plain


def _leaves(kind: type[HawkerError]) -> list[type[HawkerError]]:
    return [leaf for child in kind.__subclasses__() for leaf in [child, *_leaves(child)]]


def test_every_error_maps_to_a_client_or_availability_status() -> None:
    for leaf in _leaves(HawkerError):
        if not issubclass(leaf, CannotStart | Fault):
            assert 400 <= leaf.status < 600 and http.HTTPStatus(leaf.status)
            assert leaf.status not in (500, 502)


def test_a_prefix_comes_before_the_text_as_the_contract_shows() -> None:
    error = WrongState("unable to start machine from current state: 'created'")
    assert str(error) == "failed_precondition: unable to start machine from current state: 'created'"


def test_no_room_carries_scope_and_shortfall() -> None:
    error = NoRoom("could not find a candidate host", scope="region", shortfall={"memory_mb": 512})
    assert (error.status, error.code, error.scope, error.shortfall) == (
        422,
        "insufficient_capacity",
        "region",
        {"memory_mb": 512},
    )


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


def test_words_of_the_api_are_not_for_people() -> None:
    assert plain("failed_precondition: no: aborted: y (invalid_argument: x)") == "no: y (x)"
    assert plain("it was not aborted: x") == "it was not aborted: x"

"""What goes wrong on the way to a node, in words that say whether the call may have taken effect."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.api.failure import lost, overdue, unreachable
from hawker.errors import DeadlineExceeded, Fault, HawkerError, NotFound, Unauthorized, Unavailable
from hawker.gateway.fan_out import Reach
from tests.gateway.town import HERE, Town, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path, HERE) as town:
        yield town


@pytest.mark.parametrize(
    ("error", "harmless", "kind", "says"),
    [
        (unreachable("U"), True, Unavailable, "nothing was done"),
        (unreachable("U"), False, Unavailable, "nothing was done"),
        (overdue("U"), True, DeadlineExceeded, "in time"),
        (overdue("U"), False, Fault, "may have taken effect"),
        (lost("U", OSError()), True, Unavailable, "was lost"),
        (lost("U", OSError()), False, Fault, "may have taken effect"),
        (Unauthorized("who"), False, Unavailable, "key of the cluster"),
    ],
)
async def test_each_loss_names_the_node_and_region(
    town: Town, error: HawkerError, harmless: bool, kind: type[HawkerError], says: str
) -> None:
    (node,) = town.hosts
    with (
        pytest.raises(kind, match=f"node {node} in region {HERE}.*{says}"),
        Reach(town, town).errors(node, harmless=harmless),
    ):
        raise error


@pytest.mark.parametrize("error", [NotFound("x"), DeadlineExceeded("x"), Unavailable("x"), Fault("x")])
async def test_a_node_s_answer_passes_as_it_is(town: Town, error: HawkerError) -> None:
    (node,) = town.hosts
    with pytest.raises(HawkerError) as caught, Reach(town, town).errors(node, harmless=False):
        raise error
    assert caught.value is error


async def test_a_node_that_is_down_is_not_even_called(town: Town) -> None:
    (host,) = town.hosts.values()
    host.down = True
    with pytest.raises(Unavailable, match="is down: nothing was done"):
        Reach(town, town).caller(host.id, "ann")

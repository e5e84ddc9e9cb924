"""What is said of a node before it is forgotten."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hawker.api.contract.catalog import CatalogLine
from hawker.api.in_process import InProcessCaller
from hawker.cli.loss import Loss, loss_of, said_of
from hawker.clock import ManualClock
from tests.cli.fake_node import FakeNode

pytestmark = pytest.mark.anyio

ROWS: dict[str, list[tuple[Any, ...]]] = {
    "machines": [(3,)],
    "volumes": [(1,)],
    "apps": [("lab", 0, 0), ("moved", 2, 1), ("shop", 2, 0)],
}


class Telling(FakeNode):
    async def _query_catalog(self, call: Any) -> AsyncIterator[CatalogLine]:
        assert call.body.params == ("0badcafe",)
        table = next(table for table in ROWS if f" FROM {table} " in call.body.query)

        async def lines() -> AsyncIterator[CatalogLine]:
            yield CatalogLine(columns=("some",))
            for row in ROWS[table]:
                yield CatalogLine(row=row)

        return lines()


async def test_an_app_is_lost_unless_another_node_knows_it() -> None:
    caller = InProcessCaller(Telling().handlers(), ManualClock(), "tester")
    loss = await loss_of(caller, "0badcafe")
    assert loss == Loss(machines=3, volumes=1, left=("shop",), gone=("lab",))
    first, second, third = said_of("0badcafe", loss)
    assert first == "node 0badcafe has 3 machines and 1 volumes: they will no longer be listed"
    assert "node 0badcafe is the home of shop: the next call" in second
    assert "no other node knows lab" in third


def test_of_a_node_with_nothing_little_is_said() -> None:
    assert len(list(said_of("0badcafe", Loss(machines=0, volumes=0, left=(), gone=())))) == 1

import json

import pytest

from hawker.catalog.change import Value
from hawker.catalog.contract import RowChange
from hawker.catalog.json_lines import cell, change_line, columns_line, end_line, error_line, notify_line, row_lines


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, None), (1, 1), (1.5, 1.5), ("ü", "ü"), (b"\0\xff", [0, 255]), (float("inf"), None), (float("nan"), None)],
)
def test_cells(value: Value, said: object) -> None:
    assert cell(value) == said


def test_lines() -> None:
    change = RowChange(kind="update", row_id=3, row=(b"\1",), number=7)
    lines = [
        (columns_line(("a", "b")), {"columns": ["a", "b"]}),
        (end_line(0.5), {"eoq": {"time": 0.5}}),
        (end_line(0.5, 0), {"eoq": {"time": 0.5, "change_id": 0}}),
        (change_line(change), {"change": ["update", 3, [[1]], 7]}),
        (notify_line("delete", ("n", 1)), {"notify": ["delete", ["n", 1]]}),
        (error_line("no"), {"error": "no"}),
    ]
    for line, said in lines:
        assert line.endswith(b"\n")
        assert json.loads(line) == said
    assert row_lines([(1, ("a",)), (2, (None,))]) == b'{"row":[1,["a"]]}\n{"row":[2,[null]]}\n'

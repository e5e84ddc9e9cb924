"""How answers look as lines of JSON: cells, rows, changes, notices. Blobs are lists of their bytes."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from hawker.catalog.change import Value
from hawker.catalog.contract import RowChange

_encoder = msgspec.json.Encoder()


def cell(value: Value) -> object:
    """Numbers that JSON cannot say are null."""
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def cells(row: Sequence[Value]) -> list[object]:
    return [cell(value) for value in row]


def line(said: object) -> bytes:
    return _encoder.encode(said) + b"\n"


def columns_line(columns: Sequence[str]) -> bytes:
    return line({"columns": list(columns)})


def row_lines(rows: Iterable[tuple[int, Sequence[Value]]]) -> bytes:
    return b"".join(line({"row": [row_id, cells(row)]}) for row_id, row in rows)


def end_line(seconds: float, change: int | None = None) -> bytes:
    """The end of what was there; `change` is the last one that it has in it, None for a plain query."""
    if change is None:
        return line({"eoq": {"time": seconds}})
    return line({"eoq": {"time": seconds, "change_id": change}})


def change_line(change: RowChange) -> bytes:
    return line({"change": [change.kind, change.row_id, cells(change.row), change.number]})


def notify_line(kind: str, key: Sequence[Value]) -> bytes:
    return line({"notify": [kind, cells(key)]})


def error_line(text: str) -> bytes:
    return line({"error": text})

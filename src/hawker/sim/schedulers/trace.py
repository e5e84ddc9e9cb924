"""Orders from a CSV file instead of from chance: a header, then one order a line, by the time at which they come.

The file is somebody else's: whatever is wrong with it is a `BadRequest` that names the line, and no line of it takes
more memory than its limit.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from hawker.errors import BadRequest
from hawker.sim.schedulers.order import Order

COLUMNS = ("arrival_s", "cpus", "memory_mib", "lifetime_s", "image", "image_mib")
MOST_ORDERS = 10_000_000
_MOST_IMAGES = 100_000
_LINE_BYTES = 4096
_NAME_LENGTH = 256
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?")
_BOUNDS = {
    "arrival_s": (0.0, 1e9),
    "cpus": (1, 4096),
    "memory_mib": (1, 1 << 26),
    "lifetime_s": (0.001, 1e9),
    "image_mib": (0, 1 << 20),
}


def read_trace(file: Path, most: int = MOST_ORDERS) -> Iterator[Order]:
    """Line by line, up to `most` orders. Raises `BadRequest`."""
    images: dict[str, int] = {}
    number, last_s = 0, 0.0
    for line, cells in _lines(file):
        order = _order(number, line, dict(zip(COLUMNS, cells, strict=True)), images)
        if order.at_s < last_s:
            raise _wrong(line, f"arrival_s is {order.at_s:g} after {last_s:g}: orders must come by time")
        number, last_s = number + 1, order.at_s
        yield order
        if number == most:
            return
    if not number:
        raise _wrong(2, "there is no order")


def _lines(file: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line after the header; empty lines are passed over."""
    with file.open("rb") as source:
        for line, data in enumerate(iter(lambda: source.readline(_LINE_BYTES + 1), b""), 1):
            if line > MOST_ORDERS + 1:
                raise _wrong(line, f"the file has more than {MOST_ORDERS:,} orders")
            cells = _cells(line, data)
            if line == 1 and tuple(cells) != COLUMNS:
                raise _wrong(1, f"the header must be {','.join(COLUMNS)}")
            if line > 1 and cells:
                if len(cells) != len(COLUMNS):
                    raise _wrong(line, f"{len(cells)} columns, {len(COLUMNS)} wanted")
                yield line, cells


def _cells(line: int, data: bytes) -> list[str]:
    if len(data) > _LINE_BYTES:
        raise _wrong(line, f"longer than {_LINE_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig" if line == 1 else "utf-8").rstrip("\r\n")
        return [cell.strip() for cell in next(csv.reader([text], strict=True), [])]
    except UnicodeDecodeError as error:
        raise _wrong(line, "not UTF-8") from error
    except csv.Error as error:
        raise _wrong(line, f"no CSV: {error}") from error


def _order(number: int, line: int, cells: dict[str, str], images: dict[str, int]) -> Order:
    found = {name: _number(line, name, cells[name]) for name in _BOUNDS}
    whole = {name: int(found[name]) for name in ("cpus", "memory_mib", "image_mib")}
    for name, value in whole.items():
        if value != found[name]:
            raise _wrong(line, f"{name} must be a whole number, not {cells[name]}")
    return Order(
        number=number,
        at_s=found["arrival_s"],
        lifetime_s=found["lifetime_s"],
        image=_image(line, cells["image"], images),
        **whole,
    )


def _number(line: int, name: str, text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise _wrong(line, f"{name} is no number: {text!r:.60}")
    value, (least, most) = float(text), _BOUNDS[name]
    if not least <= value <= most:
        raise _wrong(line, f"{name} must be between {least:g} and {most:g}, not {text}")
    return value


def _image(line: int, name: str, images: dict[str, int]) -> int:
    if not 0 < len(name) <= _NAME_LENGTH or not name.isprintable():
        raise _wrong(line, f"image must be a printable name of 1 to {_NAME_LENGTH} characters, not {name!r:.60}")
    if name not in images and len(images) == _MOST_IMAGES:
        raise _wrong(line, f"the trace has more than {_MOST_IMAGES:,} images")
    return images.setdefault(name, len(images))


def _wrong(line: int, what: str) -> BadRequest:
    return BadRequest(f"the trace's line {line}: {what}")

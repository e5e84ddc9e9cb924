"""Orders: at random from a seed, or from a CSV file.

At random they have the distributions that fleets show: Poisson arrivals with bursts on top, lifetimes with a heavy tail
(bounded Pareto), images by Zipf, sizes from a table. The same seed gives the same orders to every policy. A file is
somebody else's: whatever is wrong with it is a `BadRequest` that names the line, and no line takes more memory than its
limit.
"""

import csv
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import msgspec

from hawker.clock import ManualClock
from hawker.errors import BadRequest


class Order(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`at_s` is when it comes. A machine lives for `lifetime_s` from the moment at which it runs. An app is its image,
    numbered by popularity; `image_mib` is what a host pulls that does not hold it."""

    number: int
    at_s: float
    cpus: int
    memory_mib: int
    lifetime_s: float
    image: int
    image_mib: int


Size = tuple[int, int, float]
"""Cpus, MiB of memory, how often."""

SIZES: tuple[Size, ...] = (
    (1, 256, 0.25),
    (1, 512, 0.25),
    (1, 1024, 0.2),
    (2, 2048, 0.15),
    (4, 4096, 0.1),
    (8, 8192, 0.05),
)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """`load` is the memory in use, as a share of the fleet's, to which arrivals would drive it in the long run; with a
    heavy tail that is long, so a run begins on an empty fleet and goes through all loads up to nearly full.

    A burst brings `burst_orders` of one image within `burst_s`; that share of all orders comes in bursts. Lifetimes lie
    between the two bounds; the smaller `tail` is, the heavier the tail. Images are `zipf` distributed."""

    orders: int = 5000
    seed: int = 1
    load: float = 1.2
    burst_share: float = 0.2
    burst_orders: int = 50
    burst_s: float = 5.0
    shortest_s: float = 600.0
    longest_s: float = 86_400.0
    tail: float = 1.4
    images: int = 1000
    zipf: float = 1.1
    sizes: tuple[Size, ...] = SIZES

    def mean_lifetime_s(self) -> float:
        """The mean of a bounded Pareto distribution."""
        ratio = self.shortest_s / self.longest_s
        whole = self.shortest_s * self.tail / (self.tail - 1)
        return float(whole * (1 - ratio ** (self.tail - 1)) / (1 - ratio**self.tail))

    def mean_memory_mib(self) -> float:
        return sum(memory * share for _, memory, share in self.sizes) / sum(share for _, _, share in self.sizes)

    def rate(self, fleet_memory_mib: int) -> float:
        """Orders a second."""
        return self.load * fleet_memory_mib / (self.mean_memory_mib() * self.mean_lifetime_s())


def orders(workload: Workload, fleet_memory_mib: int) -> Iterator[Order]:
    """By the time at which they come. A burst is one app that wants many machines at once."""
    random = ManualClock(seed=workload.seed).random
    draw = _Draw(workload, random)
    alone_s = 1 / (workload.rate(fleet_memory_mib) * (1 - workload.burst_share + 1e-9))
    between_s = workload.burst_orders / (workload.rate(fleet_memory_mib) * max(workload.burst_share, 1e-9))
    within_s = workload.burst_s / workload.burst_orders
    next_alone, next_burst, left, image = _wait(random, alone_s), _wait(random, between_s), 0, 0
    for number in range(workload.orders):
        if next_alone <= next_burst:
            yield draw.order(number, next_alone, draw.image())
            next_alone += _wait(random, alone_s)
            continue
        if left == 0:
            left, image = workload.burst_orders, draw.image()
        yield draw.order(number, next_burst, image)
        left -= 1
        next_burst += _wait(random, within_s if left else between_s)


def _wait(random: Callable[[], float], mean_s: float) -> float:
    return -mean_s * math.log(1 - random())


class _Draw:
    def __init__(self, workload: Workload, random: Callable[[], float]) -> None:
        self._random = random
        self._sizes = workload.sizes
        self._often = _cumulated([share for _, _, share in workload.sizes])
        self._popular = _cumulated([1 / rank**workload.zipf for rank in range(1, workload.images + 1)])
        self._image_mib = [self._weight_of_image() for _ in range(workload.images)]
        self._shortest_s, self._tail = workload.shortest_s, workload.tail
        self._cut = 1 - (workload.shortest_s / workload.longest_s) ** workload.tail

    def _weight_of_image(self) -> int:
        """From 32 MiB to 2 GiB, as many between 32 and 64 as between 1,024 and 2,048."""
        return int(32 * 2 ** (6 * self._random()))

    def image(self) -> int:
        return bisect_left(self._popular, self._random())

    def order(self, number: int, at_s: float, image: int) -> Order:
        cpus, memory_mib, _ = self._sizes[bisect_left(self._often, self._random())]
        return Order(
            number=number,
            at_s=at_s,
            cpus=cpus,
            memory_mib=memory_mib,
            lifetime_s=self._shortest_s * (1 - self._random() * self._cut) ** (-1 / self._tail),
            image=image,
            image_mib=self._image_mib[image],
        )


def _cumulated(weights: list[float]) -> list[float]:
    """Ends with 1, whatever rounding did to the sum."""
    sums = list(accumulate(weights))
    return [*(each / sums[-1] for each in sums[:-1]), 1.0]


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

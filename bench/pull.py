"""Pulls the tests' Debian image from a registry on this host and times each step. Needs root, a registry, debootstrap.

PYTHONPATH=. python bench/pull.py [rounds]
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio
from rich.console import Console
from rich.table import Table

from hawker.clock import SystemClock
from hawker.image.cache import ImageCache
from hawker.image.config import Image
from hawker.image.limits import ImageSettings
from tests.fixtures.debian_image import REPOSITORY, TAG, debian_parts
from tests.fixtures.parts import push
from tests.fixtures.registry import running_registry

Steps = dict[str, float]


async def one_round(reference: str, root: Path) -> tuple[Steps, Image]:
    """A pull into an empty cache, step by step, while a ticker measures how long the event loop was held up."""
    took: Steps = {}
    cache = ImageCache(root, ImageSettings(), SystemClock())
    await cache.open()
    try:
        async with anyio.create_task_group() as group:
            lag = await group.start(watch_lag, took)
            mark = stopwatch(took)
            resolved = await cache.resolve(reference)
            mark("resolve")
            await cache.fetch(resolved)
            mark("fetch")
            image = await cache.build(resolved)
            mark("unpack and build")
            lag.cancel()
        return took, image
    finally:
        await cache.aclose()


def stopwatch(took: Steps) -> Callable[[str], None]:
    last = time.perf_counter()

    def mark(step: str) -> None:
        nonlocal last
        now = time.perf_counter()
        took[step] = now - last
        last = now

    return mark


async def watch_lag(took: Steps, *, task_status: anyio.abc.TaskStatus[anyio.CancelScope]) -> None:
    took["longest hold of the event loop"] = 0.0
    with anyio.CancelScope() as scope:
        task_status.started(scope)
        while True:
            began = time.perf_counter()
            await anyio.sleep(0.001)
            late = time.perf_counter() - began - 0.001
            took["longest hold of the event loop"] = max(took["longest hold of the event loop"], late)


def show(rounds: list[Steps], image: Image, files: str) -> None:
    table = Table(title=f"Debian with nginx and Python: {image.size_bytes / 1e6:.1f} MB packed, {files}")
    for column in ("step", "median", "worst"):
        table.add_column(column, justify="left" if column == "step" else "right")
    steps = list(rounds[0])
    for step in steps:
        values = [took[step] for took in rounds]
        table.add_row(step, f"{statistics.median(values) * 1000:.0f} ms", f"{max(values) * 1000:.0f} ms")
    totals = [sum(value for step, value in took.items() if "hold" not in step) for took in rounds]
    table.add_row("all", f"{statistics.median(totals) * 1000:.0f} ms", f"{max(totals) * 1000:.0f} ms")
    Console().print(table)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory(prefix="hawker-bench-") as directory:
        place = Path(directory)
        (place / "registry").mkdir()
        with running_registry(place / "registry") as registry:
            reference = push(registry, REPOSITORY, TAG, debian_parts())
            results = [anyio.run(one_round, reference, place / f"cache-{number}") for number in range(count)]
    image = results[0][1]
    show([took for took, _ in results], image, f"block image {image.rootfs_bytes / 1e6:.1f} MB {image.rootfs_type}")


if __name__ == "__main__":
    main()

"""Facts about taps, made in a namespace of our own; what goes through them is in test_plug.py."""

import errno
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from hawker.errors import CannotStart
from hawker.host import links, netns
from hawker.host.machine_link import attach, ensure_tap, open_taps

pytestmark = pytest.mark.root

T = TypeVar("T")
_OWNER = 0x70000001


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "ns"
    netns.create(path, lambda _: None)
    yield path
    netns.delete(path)


def _inside(namespace: Path, work: Callable[[], T]) -> T:
    return netns.inside(namespace, work)


def test_a_tap_stays_when_nobody_has_it_open(namespace: Path) -> None:
    index = _inside(namespace, partial(ensure_tap, "tap0", _OWNER))
    assert _inside(namespace, partial(links.index_of, "tap0")) == index
    assert _inside(namespace, partial(ensure_tap, "tap0", _OWNER)) == index


def test_a_tap_that_somebody_is_at_is_left_as_it_is(namespace: Path) -> None:
    index = _inside(namespace, partial(ensure_tap, "tap0", _OWNER))
    tap = _inside(namespace, partial(attach, "tap0"))
    try:
        assert _inside(namespace, partial(ensure_tap, "tap0", _OWNER)) == index
        with pytest.raises(OSError) as refused:
            _inside(namespace, partial(attach, "tap0"))
        assert refused.value.errno == errno.EBUSY
    finally:
        os.close(tap)


def test_a_host_without_taps_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="modprobe tun"):
        open_taps(tmp_path / "no-such-device")

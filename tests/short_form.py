"""Parameters of tests that all show the same kind of thing: a few in `make test`, all of them in `make test-all`."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def short_form(values: Iterable[T], stays: Callable[[T], bool], reason: str) -> list[Any]:
    """The values, in their order. Those that do not stay in `make test` are marked `long`, with the reason."""
    more = pytest.mark.long(reason=reason)
    return [value if stays(value) else pytest.param(value, marks=more) for value in values]

"""From a method and a path to what answers it: a tree of path segments. Pure.

Works on the undecoded path, so that a parameter may hold an encoded slash. A literal segment wins over a parameter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic
from urllib.parse import unquote

from hawker.api.route import T

ANY_METHOD = "*"


class _Node(Generic[T]):
    """A segment of the tree; `targets` is by method, each with the names of its parameters."""

    __slots__ = ("literal", "parameter", "rest", "targets")

    def __init__(self) -> None:
        self.literal: dict[str, _Node[T]] = {}
        self.parameter: _Node[T] | None = None
        self.rest: _Node[T] | None = None
        self.targets: dict[str, tuple[T, tuple[str, ...]]] = {}


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    target: T
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WrongMethod:
    """The path is there, with these methods."""

    allowed: tuple[str, ...]


class Dispatch(Generic[T]):
    """Filled once, at start."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, method: str, path: str, target: T) -> None:
        """`{name}` is a parameter, a last segment `*` everything below; `ANY_METHOD` takes what no other one does."""
        node, names = self._root, []
        for segment in _segments(path):
            if segment == "*":
                node.rest = node = node.rest or _Node()
            elif segment.startswith("{"):
                names.append(segment[1:-1])
                node.parameter = node = node.parameter or _Node()
            else:
                node = node.literal.setdefault(segment, _Node())
        assert method not in node.targets, f"two routes for {method} {path}"
        node.targets[method] = (target, tuple(names))

    def find(self, method: str, path: str) -> Found[T] | WrongMethod | None:
        values: list[str] = []
        node = self._walk(path, values)
        if node is None or not node.targets:
            return None
        entry = node.targets.get(method) or node.targets.get(ANY_METHOD)
        if entry is None:
            return WrongMethod(tuple(node.targets))
        target, names = entry
        return Found(target, dict(zip(names, map(unquote, values), strict=False)))

    def _walk(self, path: str, values: list[str]) -> _Node[T] | None:
        node, rest = self._root, None
        for segment in _segments(path):
            rest = node.rest or rest
            following = node.literal.get(segment)
            if following is None:
                if node.parameter is None or not segment:
                    return rest
                values.append(segment)
                following = node.parameter
            node = following
        return node if node.targets else node.rest or rest


def _segments(path: str) -> list[str]:
    """Without the first slash and without one at the end, which some clients add."""
    return path.removeprefix("/").removesuffix("/").split("/")

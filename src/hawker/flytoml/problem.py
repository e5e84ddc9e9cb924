"""What is wrong with a file, at which place of it. All of a file's problems are told at once."""

from typing import TypeAlias

from hawker.flytoml.document import Located
from hawker.value_object import ValueObject

Path: TypeAlias = tuple[str | int, ...]

MAX_PROBLEMS = 100


class FileProblem(ValueObject, frozen=True):
    """`path` is the key in dots, empty for the whole file. A warning leaves the file usable."""

    line: int
    """Counted from 1."""
    column: int
    """Counted from 1."""
    path: str
    text: str
    """What is wrong, for people."""
    warning: bool = False
    """The file can be used as it is."""

    def line_of(self, file: str) -> str:
        """`fly.toml:14:3: http_service.internal_port: wanted a number, got "abc"`."""
        what = "warning: " if self.warning else ""
        path = f"{self.path}: " if self.path else ""
        return f"{file}:{self.line}:{self.column}: {what}{path}{self.text}"


class Problems:
    """Collects them for one document. From the hundredth on they are passed over, but for the first error. `lax`:
    unknown keys are warnings."""

    def __init__(self, root: Located) -> None:
        self.root = root
        self.lax = False
        self.found: list[FileProblem] = []

    def add(self, path: Path, text: str, *, warning: bool = False) -> None:
        """At the place of the deepest part of `path` that the document has."""
        if self.full and (warning or self.errors):
            return
        node = self.root
        for part in path:
            if isinstance(node.value, dict) and part in node.value:
                node = node.value[str(part)]
            elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
        self.found.append(FileProblem(node.line, node.column, dotted(path), text, warning))

    @property
    def full(self) -> bool:
        """Whether more problems are passed over, but for the first error."""
        return len(self.found) >= MAX_PROBLEMS

    @property
    def errors(self) -> bool:
        """Whether one of them is more than a warning."""
        return any(not each.warning for each in self.found)

    def sorted(self) -> tuple[FileProblem, ...]:
        """Errors before warnings, each in the file's order."""
        return tuple(sorted(self.found, key=lambda each: (each.warning, each.line, each.column, each.path)))


def dotted(path: Path) -> str:
    """`services[0].ports`; a key is cut at 80 characters."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part[:80]}"
    return text

"""The project's files as the rules see them: text and, for Python, the syntax tree. Reads them; judges nothing."""

import ast
import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
_FOLDERS = (".ci", "bench", "deploy", "docs", "guest", "scripts", "src", "tests")
_BUILT = ("__pycache__", "src/hawker/_guest/")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a rule objects to. `subject` is what an exception names: a call, a function, a module."""

    rule: str
    path: str
    line: int
    subject: str
    says: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.says} [{self.rule}: {self.subject}]"


@dataclass(frozen=True, slots=True)
class File:
    path: str
    text: str
    lines: list[str] = field(compare=False)
    syntax: ast.Module = field(compare=False)  # empty unless it is Python
    nodes: tuple[ast.AST, ...] = field(compare=False)  # all of its syntax, once for all rules

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def stem(self) -> str:
        return PurePosixPath(self.path).stem

    @property
    def module(self) -> str:
        """`src/hawker/store/contract.py` is `hawker.store.contract`; a package's file has the package's name."""
        parts = PurePosixPath(self.path.removeprefix("src/")).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True, slots=True)
class Tree:
    files: tuple[File, ...]

    def python(self, *folders: str) -> Iterator[File]:
        return (file for file in self.files if file.is_python and file.path.startswith(folders))

    def product(self) -> Iterator[File]:
        return self.python("src/hawker/")

    def has(self, path: str) -> bool:
        return any(file.path == path for file in self.files)


def tree_of(texts: Mapping[str, str]) -> Tree:
    """A tree from paths and texts; what the rules' own tests use."""
    return Tree(tuple(_file(path, text) for path, text in sorted(texts.items())))


def _file(path: str, text: str) -> File:
    syntax = ast.parse(text, path) if path.endswith(".py") else ast.Module([], [])
    return File(path, text, text.splitlines(), syntax, tuple(ast.walk(syntax)))


def project() -> Tree:
    """The files of this checkout that would be committed, without what is built. They are millions of objects that
    stay: looking through them for garbage would take as long as reading them."""
    gc.disable()
    try:
        return tree_of(dict(_texts()))
    finally:
        gc.freeze()
        gc.enable()


def _texts() -> Iterator[tuple[str, str]]:
    tops = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    below = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in tops + below:
        name = path.relative_to(ROOT).as_posix()
        if any(built in name for built in _BUILT):
            continue
        try:
            yield name, path.read_text()
        except UnicodeDecodeError:
            continue  # a picture or a packed sample; text rules do not apply

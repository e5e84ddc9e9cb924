"""The grain of the house: files that are whole nouns, folders that one can look over, names that mean one thing."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.tidy.imports import imports_of
from tests.tidy.tree import File, Finding, Tree

FLOOR_LINES = 60
FOLDER_MODULES = 45
SAME_STEM = 3
CONTRACT_FOLDERS = ("src/hawker/api/contract/", "src/hawker/cli/commands/", "src/hawker/handlers/")
"""Where a file is named for its noun, which other rooms have a file for, too; so are the rooms of nouns."""
_NOUNS = ("src/hawker/record/",)


def code_lines(file: File) -> int:
    """Lines that are not blank, a comment, or a part of a docstring."""
    quoted: set[int] = set()
    for node in ast.walk(file.syntax):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            quoted |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in quoted
        for number, line in enumerate(file.lines, 1)
    )


def floor(tree: Tree) -> Iterator[Finding]:
    """A small module whose one importer stands beside it belongs into that importer."""
    modules = frozenset(file.module for file in tree.product())
    importers: dict[str, set[str]] = defaultdict(set)
    for file in tree.product():
        for found in imports_of(file, modules):
            if found.target != file.module:
                importers[found.target].add(file.module)
    for file in tree.product():
        beside = importers[file.module]
        if file.stem == "__init__" or len(beside) != 1 or _folder(next(iter(beside))) != _folder(file.module):
            continue
        lines = code_lines(file)
        if lines < FLOOR_LINES:
            only = next(iter(beside))
            yield Finding("floor", file.path, 1, file.module, f"{lines} lines of code for `{only}` alone: merge them")


def _folder(module: str) -> str:
    return module.rpartition(".")[0]


def folder_size(tree: Tree) -> Iterator[Finding]:
    """A folder is looked over at a glance."""
    counts: dict[str, int] = defaultdict(int)
    for file in tree.product():
        counts[file.path.rpartition("/")[0]] += 1
    for folder, count in sorted(counts.items()):
        if count > FOLDER_MODULES:
            yield Finding("folder_size", folder, 1, folder, f"{count} modules, {FOLDER_MODULES} at most")


def one_class_a_name(tree: Tree) -> Iterator[Finding]:
    """No public class name stands twice: one word, one idea."""
    first: dict[str, str] = {}
    for file in tree.product():
        for node in file.syntax.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                other = first.setdefault(node.name, file.path)
                if other != file.path:
                    yield Finding("one_class_a_name", file.path, node.lineno, node.name, f"also in {other}")


def telling_stems(tree: Tree) -> Iterator[Finding]:
    """No module's name stands more than three times outside the folders whose files are named for a noun."""
    places: dict[str, list[str]] = defaultdict(list)
    for file in tree.product():
        if file.stem != "__init__" and not file.path.startswith((*CONTRACT_FOLDERS, *_NOUNS)):
            places[file.stem].append(file.path)
    for stem, paths in sorted(places.items()):
        if len(paths) > SAME_STEM:
            yield Finding("telling_stems", paths[-1], 1, stem, f"{len(paths)} modules of this name: {', '.join(paths)}")

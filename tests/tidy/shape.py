"""Sizes, names, docstrings and the form of values: what can be seen of a file without knowing what it does."""

import ast
import re
import statistics
from collections.abc import Iterator

from tests.tidy.calls import dotted, origins
from tests.tidy.tree import File, Finding, Tree

FILE_LINES = 500
FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 10
MEDIAN_FILE_LINES = 220
DOCSTRING_LINES = 8
PRONOUNS = frozenset({"it", "that", "there", "what", "which", "who"})
EMPTY_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"})

_SIZED = re.compile(r"^(src|tests|bench|scripts)/.*\.py$|^guest/.*\.[ch]$")
_C_FUNCTION = re.compile(r"^(?:[a-z_][\w\s*]*[\s*])?(\w+)\([^;]*(?:\{.*)?$")
_KEPT = re.compile(r"\bKeeps\s+`([\w.]+)`")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def file_size(tree: Tree) -> Iterator[Finding]:
    """Look again above 300 lines, stop at 500."""
    for file in tree.files:
        if _SIZED.match(file.path) and len(file.lines) > FILE_LINES:
            yield Finding("file_size", file.path, 1, file.stem, f"{len(file.lines)} lines, {FILE_LINES} at most")


def functions(file: File) -> Iterator[tuple[str, int, int]]:
    """Name, line and length of each function of a Python or C file."""
    if file.is_python:
        for node in file.nodes:
            if isinstance(node, _Function):
                yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1
    elif file.path.endswith(".c"):
        yield from _c_functions(file.lines)


def _c_functions(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """A C function has its name at the left margin, or after its type there, and ends with a `}` there."""
    name, began = "", 0
    for number, line in enumerate(lines, 1):
        head = _C_FUNCTION.match(line)
        if head:
            name, began = head[1], number
        elif line.startswith("}"):
            if name:
                yield name, began, number - began + 1
            name = ""
        elif line[:1].isalpha() or line.startswith("#"):
            name = ""  # something else begins: a table, a type, a prototype's end


def function_size(tree: Tree) -> Iterator[Finding]:
    """Aim below 15 lines, stop at 60."""
    for file in tree.files:
        for name, line, length in functions(file):
            if length > FUNCTION_LINES:
                yield Finding("function_size", file.path, line, name, f"{length} lines, {FUNCTION_LINES} at most")


def medians(tree: Tree) -> Iterator[Finding]:
    """The middle of the code is small; the tail is held by the other two rules."""
    files = list(tree.product())
    lengths = [length for file in files for _, _, length in functions(file)]
    if lengths and statistics.median(lengths) > MEDIAN_FUNCTION_LINES:
        yield Finding("medians", "src/hawker", 1, "function", f"median function: {statistics.median(lengths)} lines")
    sizes = [len(file.lines) for file in files if file.stem != "__init__"]
    if sizes and statistics.median(sizes) > MEDIAN_FILE_LINES:
        yield Finding("medians", "src/hawker", 1, "file", f"median file: {statistics.median(sizes)} lines")


def telling_names(tree: Tree) -> Iterator[Finding]:
    """A file is one noun that a newcomer would guess."""
    for file in tree.python("src/", "tests/", "bench/", "scripts/"):
        for part in file.path.removesuffix(".py").split("/"):
            if part.removeprefix("test_") in EMPTY_NAMES:
                yield Finding("telling_names", file.path, 1, part, f"`{part}` says nothing")


def nouns_of_tests(tree: Tree) -> Iterator[Finding]:
    """A test is named by a sentence whose subject is a noun: what fails is read without the file around it."""
    for file in tree.python("tests/"):
        for node in file.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                subject = node.name.split("_")[1]
                if subject in PRONOUNS:
                    yield Finding("nouns_of_tests", file.path, node.lineno, node.name, f"`{subject}` is no noun")


def module_docstring(tree: Tree) -> Iterator[Finding]:
    """A module opens with one to eight lines: what lives here, what does not, the invariant."""
    for file in tree.python("src/", "bench/", "scripts/"):
        docstring = ast.get_docstring(file.syntax) or ""
        lines = [line for line in docstring.splitlines() if line.strip()]
        if not 1 <= len(lines) <= DOCSTRING_LINES:
            yield Finding(
                "module_docstring", file.path, 1, file.stem, f"docstring of {len(lines)} lines, 1 to 8 wanted"
            )


def contract_docstrings(tree: Tree) -> Iterator[Finding]:
    """What others build on says what it promises: each public class of a contract."""
    for file in tree.product():
        if file.stem in ("contract", "driver"):
            for node in file.syntax.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node):
                    yield Finding("contract_docstrings", file.path, node.lineno, node.name, f"{node.name} says nothing")


def kept_contracts(tree: Tree) -> Iterator[Finding]:
    """A class that says what it keeps names something that there is, where it is."""
    files = list(tree.product())
    there = {f".{file.module}.{name}" for file in files for name in _defined(file.syntax)}
    for file in files:
        for node in file.nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            for kept in _KEPT.findall(ast.get_docstring(node) or ""):
                if not any(name.endswith(f".{kept}") for name in there):
                    yield Finding("kept_contracts", file.path, node.lineno, kept, f"keeps `{kept}`, which there is not")


def _defined(syntax: ast.Module) -> Iterator[str]:
    for node in syntax.body:
        if isinstance(node, ast.ClassDef | _Function):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from [target.id for target in targets if isinstance(target, ast.Name)]


def frozen_values(tree: Tree) -> Iterator[Finding]:
    """What is stored or sent is a frozen, keyword-only `msgspec.Struct`; a value within a process is a `ValueObject`,
    which is as frozen and may be positional. No base passes an option on here: each class says it to its reader."""
    for file in tree.product():
        names = origins(file)
        wanted = {"msgspec.Struct": ("frozen", "kw_only"), "hawker.value_object.ValueObject": ("frozen",)}
        for node in file.nodes:
            if not isinstance(node, ast.ClassDef) or file.module == "hawker.value_object":
                continue
            bases = [_base(base, names) for base in node.bases]
            for base in [base for base in bases if base in wanted][:1]:
                wanted[node.name] = wanted[base]
                for option in wanted[base]:
                    if not _is_true(node.keywords, option):
                        yield Finding(
                            "frozen_values", file.path, node.lineno, node.name, f"{node.name}: no {option}=True"
                        )


def frozen_dataclasses(tree: Tree) -> Iterator[Finding]:
    """A dataclass, where a struct does not serve, is frozen and slotted."""
    for file in tree.product():
        names = origins(file)
        for node in file.nodes:
            for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else []:
                call = decorator if isinstance(decorator, ast.Call) else ast.Call(decorator, [], [])
                if dotted(call.func, names) != "dataclasses.dataclass":
                    continue
                for option in ("frozen", "slots"):
                    if not _is_true(call.keywords, option):
                        name = node.name  # type: ignore[attr-defined]
                        yield Finding(
                            "frozen_dataclasses", file.path, decorator.lineno, name, f"{name}: no {option}=True"
                        )


def _base(node: ast.expr, names: dict[str, str]) -> str:
    bare = node.value if isinstance(node, ast.Subscript) else node
    return dotted(bare, names) or (bare.id if isinstance(bare, ast.Name) else "")


def _is_true(keywords: list[ast.keyword], option: str) -> bool:
    return any(
        keyword.arg == option and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        for keyword in keywords
    )

"""Tests mirror the source: `src/hawker/store/contract.py` is tested by `tests/store/test_contract.py`."""

import ast
from collections.abc import Iterator

from tests.tidy.tree import File, Finding, Tree


def mirrored(tree: Tree) -> Iterator[Finding]:
    """Every module with code in it has its test file, or its package below the room has, with at least one test."""
    tested = {file.path for file in tree.python("tests/") if any(name.startswith("test_") for name in _functions(file))}
    for file in tree.product():
        places = places_of_test(file)
        if _has_code(file) and tested.isdisjoint(places):
            yield Finding("mirrored", file.path, 1, file.module, f"no test in {places[0]}")


def places_of_test(file: File) -> list[str]:
    """`worker/moves/runs.py` by `tests/worker/moves/test_runs.py` or, all of it, `tests/worker/test_moves.py`;
    never a whole room by one file."""
    parts = file.module.split(".")[1:]
    whole = range(len(parts), 0 if len(parts) == 1 else 1, -1)
    return ["/".join(["tests", *parts[: end - 1], f"test_{parts[end - 1]}.py"]) for end in whole]


def _functions(file: File) -> Iterator[str]:
    return (node.name for node in file.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _has_code(file: File) -> bool:
    """Whether any function does something; fields, constants and the bare methods of a protocol do not."""
    functions = (node for node in file.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(not _is_bare(statement) for function in functions for statement in function.body)


def _is_bare(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)

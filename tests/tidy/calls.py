"""What may not be called, and where: time and chance go round the clock, tasks outside groups, swallowed errors."""

import ast
import builtins
import functools
from collections.abc import Iterator, Mapping

from tests.tidy.tree import File, Finding, Tree

_CLOCK = "time and chance come from a `Clock`"
_GROUP = "tasks start in a task group"
_SLEEP = "wait for a condition with a deadline, see tests/waiting.py"

IN_PRODUCT: Mapping[str, str] = {
    "time.time": _CLOCK,
    "time.time_ns": _CLOCK,
    "time.monotonic": _CLOCK,
    "time.monotonic_ns": _CLOCK,
    "time.perf_counter": _CLOCK,
    "time.perf_counter_ns": _CLOCK,
    "time.sleep": "blocks the event loop",
    "anyio.sleep": _CLOCK,
    "asyncio.sleep": _CLOCK,
    "datetime.datetime.now": _CLOCK,
    "datetime.datetime.today": _CLOCK,
    "datetime.datetime.utcnow": _CLOCK,
    "datetime.date.today": _CLOCK,
    "random.": _CLOCK,
    "secrets.": _CLOCK,
    "os.urandom": _CLOCK,
    "uuid.uuid1": _CLOCK,
    "uuid.uuid4": _CLOCK,
    "asyncio.create_task": _GROUP,
    "asyncio.ensure_future": _GROUP,
}
"""Names by where they come from; a dot at the end stands for all below."""

IN_TESTS: Mapping[str, str] = {"time.sleep": _SLEEP, "anyio.sleep": _SLEEP, "asyncio.sleep": _SLEEP}

_BROAD = frozenset({"Exception", "BaseException"})


@functools.cache
def origins(file: File) -> dict[str, str]:
    """What each imported name of the file stands for: `{"sleep": "time.sleep"}` after `from time import sleep`."""
    names: dict[str, str] = {}
    for node in file.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.AST, names: Mapping[str, str]) -> str | None:
    """The full name of an expression made of names and dots; None when it begins with a value."""
    if isinstance(node, ast.Name):
        return names.get(node.id) or (node.id if hasattr(builtins, node.id) else None)
    if isinstance(node, ast.Attribute):
        left = dotted(node.value, names)
        return f"{left}.{node.attr}" if left else None
    return None


@functools.cache
def uses(file: File) -> tuple[tuple[str, int], ...]:
    """Every imported or built-in name that the file's code reads, called or passed on."""
    return tuple(_uses(file))


def _uses(file: File) -> Iterator[tuple[str, int]]:
    names = origins(file)
    for node in file.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = dotted(node, names)
            if name:
                yield name, node.lineno


def _reason(name: str, banned: Mapping[str, str]) -> str | None:
    for pattern, reason in banned.items():
        if name == pattern or (pattern.endswith(".") and name.startswith(pattern)):
            return reason
    return None


def banned(tree: Tree) -> Iterator[Finding]:
    """Calls that break virtual time, lose tasks or wait for luck."""
    for file in tree.python("src/", "tests/"):
        table = IN_PRODUCT if file.path.startswith("src/") else IN_TESTS
        for name, line in uses(file):
            reason = _reason(name, table)
            if reason:
                yield Finding("banned", file.path, line, name, f"{name}: {reason}")


def loose_tasks(tree: Tree) -> Iterator[Finding]:
    """`create_task` and `ensure_future` of any object: nobody can point to the group such a task lives in."""
    for file in tree.product():
        for node in file.nodes:
            if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future"):
                yield Finding("loose_tasks", file.path, node.lineno, node.attr, _GROUP)


def printing(tree: Tree) -> Iterator[Finding]:
    """Only the command line prints; the rest logs."""
    for file in tree.product():
        if not file.path.startswith("src/hawker/cli/"):
            for name, line in uses(file):
                if name in ("print", "rich.print"):
                    yield Finding("printing", file.path, line, name, "prints outside cli/")


def swallowing(tree: Tree) -> Iterator[Finding]:
    """Everything is caught in three places only. A handler that ends in a bare `raise` swallows nothing."""
    for file in tree.product():
        names = origins(file)
        for node in file.nodes:
            if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises_again(node):
                yield Finding("swallowing", file.path, node.lineno, "except", "catches everything")
            if isinstance(node, ast.Call) and _suppresses_everything(node, names):
                yield Finding("swallowing", file.path, node.lineno, "suppress", "suppresses everything")


def _suppresses_everything(call: ast.Call, names: Mapping[str, str]) -> bool:
    return dotted(call.func, names) == "contextlib.suppress" and any(map(_is_broad, call.args))


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(_is_broad(each) for each in caught.elts)
    return caught is None or (isinstance(caught, ast.Name) and caught.id in _BROAD)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None

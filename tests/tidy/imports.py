"""Who imports whom: the rungs of the house, the one meeting place, no cycles, nothing imported late, nothing dead."""

import ast
import functools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.tidy.tree import File, Finding, Tree

RUNGS: tuple[frozenset[str], ...] = tuple(
    map(
        frozenset,
        (
            # 0: the vocabulary: values and small pure rules
            """app clock cluster config containment deferred errors failpoint fair feed flytoml gpu guest host_ids http
            ids keyed_locks log machine names node permission place policy region route_question settings time_window
            token_bucket value_object vault version""".split(),
            # 1: materials, none of which knows another
            "api store gossip catalog image host archive observe audit".split(),
            # 2: engines, and every stored value
            "fsm runtime record quota backup".split(),
            # 3: nouns with state
            "volume secret netpolicy history logs auth".split(),
            # 4: roles, which talk HTTP and read the catalog
            "worker market gateway flyfront fleet edge dns deploys cli".split(),
            # 5: what a node answers: they know the worker
            ["handlers"],
            # 6: wholes
            "up chaos proof sim __main__".split(),
        ),
    )
)
"""The rooms of the house. A room imports from the rungs below its own; rooms of one rung know each other where
`may_import` says so."""

ROOMS = frozenset[str]().union(*RUNGS)
WHOLES = RUNGS[-1]
NARROW: Mapping[str, frozenset[str]] = {"fsm": frozenset({"store"}), "runtime": frozenset({"host"})}
"""Rooms that may know less of the rungs below than the others of their rung."""
BESIDE: Mapping[str, frozenset[str]] = {"record": frozenset({"fsm", "runtime"}), "quota": frozenset({"record"})}
"""Rooms that may know others of their own rung, because a record holds their values."""

MEETING = frozenset({"image", "host", "runtime"})
MEETING_PLACES = ("hawker.worker.lifecycle", "hawker.up")

OWNERS = {
    "apsw": ("hawker.store.sqlite", "hawker.catalog"),
    "sqlite3": ("hawker.store.sqlite",),
    "opentelemetry": ("hawker.observe.otlp",),
}
"""Libraries that one module, or one room, hides from all others."""


@dataclass(frozen=True, slots=True)
class Import:
    target: str
    line: int
    inside: str  # the function it stands in, or ""


def may_import(room: str) -> frozenset[str]:
    """The rooms that `room` may import, itself not counted."""
    for height, rung in enumerate(RUNGS):
        if room in rung:
            below = frozenset[str]().union(*RUNGS[:height])
            beside = rung if height == 0 or rung is WHOLES else BESIDE.get(room, frozenset())
            known = RUNGS[0] | NARROW[room] if room in NARROW else below
            return known | beside
    return ROOMS


def room_of(module: str) -> str:
    return (module + ".").split(".")[1]


def imports_of(file: File, modules: frozenset[str]) -> Iterator[Import]:
    """Every import in the file; of Hawker's own, the module that it names rather than the name taken out of it."""
    for inside, node in _imports(file):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, inside)
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(file, node)
            for alias in node.names:
                full = f"{origin}.{alias.name}"
                yield Import(full if full in modules else origin, node.lineno, inside)


def _absolute(file: File, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = file.module.split(".") if file.stem == "__init__" else file.module.split(".")[:-1]
    return ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])


@functools.cache
def _imports(file: File) -> tuple[tuple[str, ast.AST], ...]:
    """Each with the function that it stands in, "" at the top."""
    return tuple(each for each in _statements(file.syntax, "") if isinstance(each[1], ast.Import | ast.ImportFrom))


def _statements(node: ast.AST, inside: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        yield inside, child
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _statements(child, child.name if is_function else inside)  # type: ignore[attr-defined]


def _modules(tree: Tree) -> frozenset[str]:
    return frozenset(file.module for file in tree.product())


def _own(tree: Tree) -> Iterator[tuple[File, Import]]:
    modules = _modules(tree)
    for file in tree.product():
        for found in imports_of(file, modules):
            if found.target.split(".")[0] == "hawker":
                yield file, found


def downward(tree: Tree) -> Iterator[Finding]:
    """Imports go down the rungs only; rooms of one rung know each other where `may_import` says so."""
    for file in tree.product():
        room = room_of(file.module)
        if room and room not in ROOMS:
            yield Finding("downward", file.path, 1, room, f"the room `{room}` stands on no rung")
    for file, found in _own(tree):
        room, target = room_of(file.module), room_of(found.target)
        if target and room != target and target not in may_import(room):
            yield Finding("downward", file.path, found.line, found.target, f"`{room}` may not import `{target}`")


def one_meeting_place(tree: Tree) -> Iterator[Finding]:
    """Image, host and runtime meet in `worker/lifecycle/` and where a process is built, nowhere else."""
    met: dict[str, set[str]] = {}
    for file, found in _own(tree):
        if room_of(file.module) != "runtime" and not file.module.startswith(MEETING_PLACES):
            met.setdefault(file.path, set()).update({room_of(found.target)} & MEETING)
    for path, rooms in met.items():
        if len(rooms) > 1:
            subject = "+".join(sorted(rooms))
            yield Finding("one_meeting_place", path, 1, subject, f"{subject} meet outside worker/lifecycle")


def at_the_top(tree: Tree) -> Iterator[Finding]:
    """No import inside a function: it hides a cycle or a cost."""
    for file in tree.python("src/", "tests/", "bench/", "scripts/"):
        for found in imports_of(file, frozenset()):
            if found.inside:
                yield Finding("at_the_top", file.path, found.line, found.inside, f"imports {found.target} late")


def hidden_libraries(tree: Tree) -> Iterator[Finding]:
    """A library that one module hides is imported there only."""
    for file in tree.product():
        for found in imports_of(file, frozenset()):
            library = found.target.split(".")[0]
            owners = OWNERS.get(library)
            if owners is not None and not f"{file.module}.".startswith(tuple(f"{owner}." for owner in owners)):
                yield Finding("hidden_libraries", file.path, found.line, library, f"`{library}` is {owners[0]}'s")


def acyclic(tree: Tree) -> Iterator[Finding]:
    """No module imports itself by way of others."""
    edges: dict[str, set[str]] = {}
    paths = {file.module: file.path for file in tree.product()}
    for file, found in _own(tree):
        if found.target != file.module:
            edges.setdefault(file.module, set()).add(found.target)
    for module in sorted(paths):
        if module in _reachable(module, edges):
            yield Finding("acyclic", paths[module], 1, module, "imports itself by way of others")


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    ahead = list(edges.get(start, ()))
    while ahead:
        module = ahead.pop()
        if module not in seen:
            seen.add(module)
            ahead.extend(edges.get(module, ()))
    return seen


def alive(tree: Tree) -> Iterator[Finding]:
    """Every module is imported by another one, or is where a program begins. Tests and benchmarks do not count."""
    used = {found.target for file, found in _own(tree) if found.target != file.module} | _entries(tree)
    used |= {found.target for file in tree.python("scripts/") for found in imports_of(file, _modules(tree))}
    for file in tree.product():
        if file.stem not in ("__init__", "__main__") and file.module not in used:
            yield Finding("alive", file.path, 1, file.module, "nothing imports this module")


def _entries(tree: Tree) -> set[str]:
    texts = [file.text for file in tree.files if file.path == "pyproject.toml"]
    scripts = [tomllib.loads(text).get("project", {}).get("scripts", {}) for text in texts]
    return {place.split(":")[0] for table in scripts for place in table.values()}

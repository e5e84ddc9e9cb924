"""What the fields of stored, sent and tuned values say. A rule sees that something is said, not that it is true."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.tidy.tree import File, Finding, Tree

ELSEWHERE = ("src/hawker/settings.py", "src/hawker/flytoml/app_config.py")
"""A setting is described by its option of `hawker up`, and in docs/generated/settings.md. The keys of a fly.toml are
those of Fly's file, and become fields of a `MachineConfig`."""
_VALUES = re.compile(r"(^|\.)(Struct|ValueObject|Dated|Request|Answer|Part|TimedPart)$")
_PLAIN = frozenset({"str", "int", "float", "bool", "bytes", "tuple", "dict", "frozenset"})
_READ = ("src/hawker/api/contract/", "src/hawker/record/")
_RIDDLE = re.compile(r"(Of|As|The same|Once|Whose|With|By|For|To|What|Where)\b")
_MOMENT = re.compile(r"(^|_)at$")


def described_fields(tree: Tree) -> Iterator[Finding]:
    """Each field of a plain type says what it is: below it, behind it, or by its name in backquotes in what its class
    says. A moment (`at`, `created_at`) is described where the class says that its times are Unix seconds. A type of its
    own (an identifier, an enum, another value) says it where it is defined."""
    for file in tree.product():
        for node in file.nodes if file.path not in ELSEWHERE else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and _is_value(node):
                yield from _silent(file, node)


def telling_fields(tree: Tree) -> Iterator[Finding]:
    """What the text below a field of the API or of a record says is a sentence of its own, and begins with its noun."""
    for file in tree.product():
        read = file.nodes if file.path.startswith(_READ) else ()
        for node in [each for each in read if isinstance(each, ast.ClassDef)]:
            for field, below in pairwise(node.body):
                if isinstance(field, ast.AnnAssign) and _is_text([below]) and _is_riddle(ast.unparse(below)):
                    subject = f"{node.name}.{ast.unparse(field.target)}"
                    yield Finding("telling_fields", file.path, below.lineno, subject, "says it without its noun")


def _is_riddle(literal: str) -> bool:
    said = str(ast.literal_eval(literal))
    return len(said.split()) <= 3 or bool(_RIDDLE.match(said))


def _is_value(node: ast.ClassDef) -> bool:
    return any(_VALUES.search(ast.unparse(base)) for base in node.bases)


def _silent(file: File, node: ast.ClassDef) -> Iterator[Finding]:
    said = ast.get_docstring(node) or ""
    for number, line in enumerate(node.body):
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        if not all(part.id in _PLAIN for part in ast.walk(line.annotation) if isinstance(part, ast.Name)):
            continue
        name = line.target.id
        moment = _MOMENT.search(name) and "Unix seconds" in said
        behind = "  # " in file.lines[(line.end_lineno or line.lineno) - 1]
        if not (f"`{name}`" in said or moment or behind or _is_text(node.body[number + 1 : number + 2])):
            subject = f"{node.name}.{name}"
            yield Finding("described_fields", file.path, line.lineno, subject, "says neither unit, range nor effect")


def _is_text(after: list[ast.stmt]) -> bool:
    return any(
        isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
        for line in after
    )

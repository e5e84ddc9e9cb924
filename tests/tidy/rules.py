"""All rules, and how exceptions apply: a named line with its reason, refused when nothing needs it any more."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.tidy import calls, fields, grain, imports, mirror, shape, shares, text
from tests.tidy.tree import Finding, Tree

Rule = Callable[[Tree], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    imports.downward,
    imports.one_meeting_place,
    imports.at_the_top,
    imports.hidden_libraries,
    imports.acyclic,
    imports.alive,
    calls.banned,
    calls.loose_tasks,
    calls.printing,
    calls.swallowing,
    shares.unkeyed_shares,
    fields.described_fields,
    fields.telling_fields,
    grain.floor,
    grain.folder_size,
    grain.one_class_a_name,
    grain.telling_stems,
    shape.file_size,
    shape.function_size,
    shape.medians,
    shape.telling_names,
    shape.nouns_of_tests,
    shape.module_docstring,
    shape.contract_docstrings,
    shape.kept_contracts,
    shape.frozen_values,
    shape.frozen_dataclasses,
    text.finished,
    text.no_places,
    text.no_registries,
    text.links,
    mirror.mirrored,
)


@dataclass(frozen=True, slots=True)
class Allowed:
    """`path` and `subject` (what a finding ends with) may be patterns. `reason` is a sentence."""

    rule: str
    path: str
    subject: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        matches = fnmatchcase(finding.path, self.path) and fnmatchcase(finding.subject, self.subject)
        return matches and self.rule == finding.rule


@functools.cache
def _found(rule: Rule, tree: Tree) -> tuple[Finding, ...]:
    return tuple(rule(tree))


def broken(rule: Rule, tree: Tree, allowed: Iterable[Allowed]) -> list[Finding]:
    """What the rule finds and no exception covers."""
    return [finding for finding in _found(rule, tree) if not any(line.covers(finding) for line in allowed)]


def unneeded(tree: Tree, allowed: Iterable[Allowed]) -> list[Allowed]:
    """Exceptions that cover nothing."""
    found = [finding for rule in RULES for finding in _found(rule, tree)]
    return [line for line in allowed if not any(line.covers(finding) for finding in found)]

"""The page of threats names every finding of the review, and no test that is not there."""

import ast
import re
from pathlib import Path

import pytest

from hawker.chaos.hostile.trial import SCENES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/threat-model.md").read_text()
FINDINGS = [
    "C1",
    "C2",
    *(f"H{n}" for n in range(1, 11)),
    *(f"M{n}" for n in range(1, 13)),
    *(f"L{n}" for n in range(1, 8)),
]


def rows() -> list[list[str]]:
    """Of the table of findings."""
    table = PAGE[PAGE.index("## What a review found") :].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:] if not line.startswith("|---")]


def test_every_finding_has_one_row_in_its_order() -> None:
    assert [row[0] for row in rows()] == FINDINGS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_finding_is_mended_with_a_test_or_is_a_limit_in_words(row: list[str]) -> None:
    _, found, now, test, _ = row
    assert found and now
    assert "`tests/" in test or now.startswith("limit:"), "neither a test nor a limit"


def test_a_finding_is_played_by_scenes_that_are_there() -> None:
    played = {scene for row in rows() for scene in row[4].split("; ") if scene}
    assert played <= {scene.name for scene in SCENES} and len(played) > len(FINDINGS)


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE))))
def test_a_test_that_the_page_names_is_there(named: str) -> None:
    path, _, name = named.partition("::")
    assert (ROOT / path).exists(), path
    if name:
        tree = ast.parse((ROOT / path).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}

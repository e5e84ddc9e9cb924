import re
from collections.abc import Iterator
from pathlib import Path

from scripts.docs import errors, metrics, pages, settings, stale, write


def test_every_flow_has_its_page() -> None:
    assert {"flows/create.md", "flows/destroy.md", "errors.md", "metrics.md", "settings.md"} <= pages().keys()


def test_an_error_shows_its_status_and_whether_a_retry_helps() -> None:
    [row] = [row for row in errors() if row.startswith("| Unavailable ")]
    said = "The call cannot be served now. Nothing was changed, and the same call may work in a moment."
    assert row == f"| Unavailable | 503 | `unknown` | yes | {said} |"


def test_an_error_without_a_word_of_its_own_does_not_borrow_one() -> None:
    [row] = [row for row in errors() if row.startswith("| NotFound ")]
    assert row.endswith("| no |  |")


def test_a_metric_shows_its_type_its_labels_and_what_it_counts() -> None:
    [row] = [row for row in metrics() if row.startswith("| `hawker_runs_ended_total`")]
    assert row.endswith("| counter | `flow`, `outcome` | Runs ended, by flow and outcome. |")


def test_a_setting_shows_its_default_its_unit_and_its_range() -> None:
    rows = list(settings())
    assert "| `machine_pids` | int | `4096` | at least 1 | How many processes a machine may have. |" in rows
    assert "| `cpus` | int or None | `None` | at least 1 | How many cpus to sell; default all of the host. |" in rows
    assert any(row.startswith("| `audit_mib` | int | `256` | MiB, at least 16 | ") for row in rows)
    assert "| `region` | str | `'local'` |  | The region that the node is in. |" in rows


def test_missing_changed_and_left_over_pages_are_stale_until_written(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/gone.md").write_text("old")
    (tmp_path / "errors.md").write_text("old")
    wanted = {"errors.md": "new", "flows/create.md": "new", "settings.md": "same"}
    (tmp_path / "settings.md").write_text("same")
    assert stale(wanted, tmp_path) == ["errors.md", "flows/create.md", "flows/gone.md"]
    write(wanted, tmp_path)
    assert stale(wanted, tmp_path) == []


ROOT = Path(__file__).parents[2]
_TEST = re.compile(r"`(tests/[\w/.]+?)(?:::(\w+))?`")


def _claims(page: Path) -> Iterator[str]:
    """The rows of its tables that say which test shows what they promise."""
    has_tests = False
    for line in page.read_text().splitlines():
        if not line.startswith("|"):
            has_tests = False
        elif line.rstrip("| ").endswith("| Test"):
            has_tests = True
        elif has_tests and not line.startswith("|---"):
            yield line


def test_every_promise_of_the_threat_model_names_tests_that_exist() -> None:
    claims = list(_claims(ROOT / "docs/threat-model.md"))
    assert len(claims) > 40
    for claim in claims:
        shown_by = _TEST.findall(claim.rstrip("| ").rpartition("|")[2])
        assert shown_by, claim
        for path, test in shown_by:
            assert (ROOT / path).exists(), path
            assert not test or f"def {test}(" in (ROOT / path).read_text(), test

"""The files in `deploy/` for Grafana and Prometheus: they ask for what is exported, and by labels that it has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.api.contract.node import EDGE_METRICS, MACHINE_METRICS, METRICS
from hawker.observe.edge_page import EDGE_FAMILIES
from hawker.observe.metrics import build_metrics
from hawker.settings import Settings
from hawker.worker.scrape import UP
from hawker.worker.usage import USAGE_NAMES

PROJECT = Path(__file__).parents[2]
DEPLOY = PROJECT / "deploy"
ADDED = {"instance", "job"}  # by Prometheus itself
NAME = re.compile(r"\b((?:hawker|process|fly)_[a-z_]+)(?:{([^}]*)}|\[|\))")
PANELS: list[dict[str, Any]] = msgspec.json.decode((DEPLOY / "grafana-dashboard.json").read_bytes())["panels"]


def exported() -> dict[str, set[str]]:
    """The names of all metrics with their labels."""
    metrics = build_metrics("1.2.3")
    ours = {family.name: set(family.labels) for family in (*metrics.families, *EDGE_FAMILIES)}
    process = {line.split()[2] for line in metrics.exposition().splitlines() if line.startswith("# TYPE process_")}
    return ours | {name: set() for name in process}


def asked_in(expression: str) -> list[tuple[str, str]]:
    """Metrics and their selectors. Series of a histogram have an ending, which is in the names of some counters."""
    known = exported()
    found = NAME.findall(expression)
    return [(name if name in known else re.sub(r"_(bucket|sum|count)$", "", name), by) for name, by in found]


def targets() -> Iterator[tuple[str, str, str]]:
    """Panel, expression and legend."""
    for panel in PANELS:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]


@pytest.mark.parametrize(("panel", "expression", "legend"), list(targets()))
def test_a_panel_asks_for_what_is_exported(panel: str, expression: str, legend: str) -> None:
    known, asked = exported(), asked_in(expression)
    assert asked, expression
    assert len(asked) == len(re.findall(r"\b(?:hawker|process|fly)_", expression)), "each is understood by this test"
    for name, selector in asked:
        labels = set(re.findall(r"(\w+)(?:=|!)", selector))
        assert name in known and labels <= known[name] | ADDED, name
        grouped = {label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(", ")}
        assert grouped <= known[name] | ADDED | {"le"}, name
        shown = set(re.findall(r"{{(\w+)}}", legend))
        assert shown <= grouped or shown <= {"version", "instance"}


def test_every_panel_is_of_the_chosen_nodes_and_has_a_place_of_its_own() -> None:
    assert all('instance=~"$instance"' in expression for _, expression, _ in targets())
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_the_data_source_is_chosen_at_the_import() -> None:
    whole = msgspec.json.decode((DEPLOY / "grafana-dashboard.json").read_bytes())
    first = whole["templating"]["list"][0]
    assert (first["name"], first["type"]) == ("datasource", "datasource")
    sources = {panel["datasource"]["uid"] for panel in PANELS if panel["type"] != "row"}
    assert sources == {"${datasource}"} and "id" not in whole


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    asked = {name for _, expression, _ in targets() for name, _ in asked_in(expression)}
    assert {name for name in exported() if name.startswith("hawker_")} - asked == set()


def test_the_example_for_prometheus_reads_where_a_node_answers() -> None:
    text = (DEPLOY / "prometheus.yml").read_text()
    assert f"metrics_path: {METRICS.path}\n" in text
    assert f'["{Settings(data_dir=Path("/")).listen}"]' in text
    for route in (MACHINE_METRICS, EDGE_METRICS):  # an instance is a machine there
        assert f"metrics_path: {route.path}\n    honor_labels: true\n" in text
    assert "credentials_file" in text and "job_name: hawker\n" in text


def test_the_page_on_watching_a_node_names_what_is_exported() -> None:
    text = (PROJECT / "docs" / "metrics.md").read_text()
    named = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\bhawker_[a-z_]+", text)}
    assert len(named) > 5 and named <= exported().keys() | {UP} | USAGE_NAMES

"""What is exported, as Prometheus's own parser reads it."""

import re

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from hawker.observe.metrics import (
    COMMIT_S,
    GROUP,
    LAG_S,
    REQUEST_S,
    STEP_S,
    ApiMetrics,
    Families,
    Family,
    MetricsRegistry,
    RunMetrics,
    StoreMetrics,
    build_metrics,
)
from hawker.store.writer import GROUP_LIMIT

UNITS = ("_total", "_seconds", "_bytes", "_info", "_cpus", "_transactions")
COUNTS = {  # gauges of things that are counted: the thing is the unit
    "hawker_machines",
    "hawker_histories_waiting",
    "hawker_runs_open",
    "hawker_queue_limit",
    "hawker_queue_active",
    "hawker_queue_waiting",
    "hawker_fleet_nodes",
    "hawker_connections_tracked",
    "hawker_connections_limit",
    "hawker_dropped_packets",
    "hawker_catalog_gaps",
    "hawker_catalog_queued",
    "hawker_edge_events",
    "hawker_log_lines",
    "hawker_edge_held",
    "hawker_edge_in_flight",
    "hawker_edge_process_events",
}


@pytest.fixture
def metrics() -> MetricsRegistry:
    return build_metrics("1.2.3")


def value(metrics: MetricsRegistry, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"hawker_{name}", labels)


def test_prometheus_can_read_it(metrics: MetricsRegistry) -> None:
    metrics.api.answered("GET", '/odd"path\\\n', 200, 0.1)
    families = {family.name: family for family in text_string_to_metric_families(metrics.exposition())}
    assert families["hawker_build_info"].samples[0].labels["version"] == "1.2.3"
    assert families["hawker_api_requests"].samples[0].labels["route"] == '/odd"path\\\n'
    assert {"hawker_event_loop_lag_seconds", "process_resident_memory_bytes"} <= families.keys()


def test_every_name_is_ours_says_its_unit_and_has_a_text(metrics: MetricsRegistry) -> None:
    for family in metrics.families:
        assert re.fullmatch(r"hawker_[a-z_]+", family.name)
        assert family.name.endswith(UNITS) or family.name in COUNTS, family.name
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert family.text.endswith("."), family.name


def test_every_family_is_exported_under_its_name(metrics: MetricsRegistry) -> None:
    text = metrics.exposition()
    assert [family.name for family in metrics.families if f"# TYPE {family.name} {family.kind}\n" not in text] == []


def test_no_label_can_name_what_a_user_names(metrics: MetricsRegistry) -> None:
    labels = {label for family in metrics.families for label in family.labels}
    of_runs, of_calls = {"flow", "step", "outcome", "queue"}, {"method", "route", "status"}
    assert labels == of_runs | of_calls | {
        "state",
        "fate",
        "kind",
        "durability",
        "version",
        "python",
        "reason",
        "event",
        "process",
    }


def test_nothing_says_when_it_was_born(metrics: MetricsRegistry) -> None:
    metrics.runs.accepted.labels("create").inc()
    assert "_created" not in metrics.exposition()


def test_two_nodes_in_one_process_count_apart() -> None:
    one, other = build_metrics("1"), build_metrics("1")
    one.runs.accepted.labels("create").inc()
    assert value(other, "runs_accepted_total", flow="create") is None


def test_a_request_counts_by_method_route_and_status(metrics: MetricsRegistry) -> None:
    api: ApiMetrics = metrics.api
    api.answered("GET", "/v1/apps/{app_name}", 200, 0.02)
    api.answered("GET", "/v1/apps/{app_name}", 404, 0.02)
    assert value(metrics, "api_requests_total", method="GET", route="/v1/apps/{app_name}", status="404") == 1
    labels = {"method": "GET", "route": "/v1/apps/{app_name}", "le": "0.025"}
    assert value(metrics, "api_request_duration_seconds_bucket", **labels) == 2


def test_methods_that_a_client_makes_up_are_one(metrics: MetricsRegistry) -> None:
    for method in ("BREW", "PROPFIND"):
        metrics.api.answered(method, "-", 405, 0.0)
    assert value(metrics, "api_requests_total", method="other", route="-", status="405") == 2


def test_a_commit_counts_by_durability_with_its_size(metrics: MetricsRegistry) -> None:
    store: StoreMetrics = metrics.store
    with store.commit(3, durable=True):
        pass
    with store.commit(2, durable=False):
        pass
    assert value(metrics, "store_commit_duration_seconds_count", durability="durable") == 1
    assert value(metrics, "store_group_transactions_sum") == 5


def test_a_failed_commit_is_no_commit(metrics: MetricsRegistry) -> None:
    with pytest.raises(OSError, match="full"), metrics.store.commit(3, durable=True):
        raise OSError("full")
    metrics.store.failed()
    assert value(metrics, "store_group_transactions_count") == 0
    assert value(metrics, "store_commit_failures_total") == 1


def test_runs_are_there_before_the_first(metrics: MetricsRegistry) -> None:
    assert isinstance(metrics.runs, RunMetrics)
    assert "# TYPE hawker_runs_ended_total counter" in metrics.exposition()


def test_a_family_has_our_name_its_labels_and_its_registry() -> None:
    registry = CollectorRegistry()
    make = Families(registry)
    make.counter("jobs_total", "Jobs.", "kind").labels("large").inc()
    make.gauge("size_bytes", "Size.").set(3)
    make.histogram("job_seconds", "Time.", (1.0, 2.0)).observe(1.5)
    assert make.made[0] == Family("hawker_jobs_total", "counter", "Jobs.", ("kind",))
    assert [family.kind for family in make.made] == ["counter", "gauge", "histogram"]
    assert registry.get_sample_value("hawker_jobs_total", {"kind": "large"}) == 1
    assert registry.get_sample_value("hawker_size_bytes") == 3
    assert registry.get_sample_value("hawker_job_seconds_bucket", {"le": "2.0"}) == 1


def test_buckets_rise_and_the_largest_group_has_one() -> None:
    for buckets in (COMMIT_S, STEP_S, REQUEST_S, LAG_S, GROUP):
        assert list(buckets) == sorted(set(buckets))
    assert GROUP[-1] == GROUP_LIMIT

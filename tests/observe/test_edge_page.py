"""The page of the edge's figures as Prometheus reads it."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hawker.feed import RESPONSE_S, AppFigure, EdgeReport, MachineFigure, Times
from hawker.ids import AppName, MachineId
from hawker.observe.edge_page import EDGE_FAMILIES, edge_page

SHOP, ONE, TWO = AppName("shop"), MachineId("00000000000001"), MachineId("00000000000002")
TIMES = Times(buckets=(1, *(0,) * (len(RESPONSE_S) - 1), 2), seconds=30.5)


def read(report: EdgeReport) -> dict[tuple[str, ...], float]:
    """Values by name, as this parser has it for counters without `_total`, and labels' values."""
    return {
        (sample.name.removesuffix("_total"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(edge_page(report, {ONE: SHOP}))
        for sample in family.samples
    }


def whole() -> EdgeReport:
    """A report in which everything was counted."""
    figure = AppFigure(
        app=SHOP,
        statuses={"200": 4, "503": 1},
        buckets=TIMES.buckets,
        seconds=TIMES.seconds,
        connects=3,
        disconnects=2,
        bytes_in=100,
        bytes_out=2000,
        handshakes={"TLSv1.3": TIMES},
        tls_errors=5,
        wakes=TIMES,
        events={"wakes": 1, "errors_PR01": 7},
        verdicts={"go": 8},
        held=9,
    )
    machine = MachineFigure(
        app=SHOP, machine=ONE, statuses={"200": 4}, answers=TIMES, dials=TIMES, connects=3, disconnects=1
    )
    return EdgeReport(call=1, apps=(figure,), machines=(machine,), in_flight={ONE: 2, TWO: 1})


def test_every_family_has_its_figures() -> None:
    found = read(whole())
    expected = {
        ("fly_edge_http_responses_count", "shop", "503"): 1,
        ("fly_edge_http_response_time_seconds_count", "shop"): 3,
        ("fly_edge_http_response_time_seconds_sum", "shop"): 30.5,
        ("fly_edge_http_response_time_seconds_bucket", "shop", "10.0"): 1,
        ("fly_edge_http_response_time_seconds_bucket", "shop", "+Inf"): 3,
        ("fly_edge_tcp_connects_count", "shop"): 3,
        ("fly_edge_tcp_disconnects_count", "shop"): 2,
        ("fly_edge_data_in", "shop"): 100,
        ("fly_edge_data_out", "shop"): 2000,
        ("fly_edge_tls_handshake_errors", "shop"): 5,
        ("fly_edge_tls_handshake_time_seconds_count", "shop", "TLSv1.3"): 3,
        ("fly_app_concurrency", "shop", ONE): 2,
        ("fly_app_http_responses_count", "shop", ONE, "200"): 4,
        ("fly_app_http_response_time_seconds_count", "shop", ONE): 3,
        ("fly_app_connect_time_seconds_count", "shop", ONE): 3,
        ("fly_app_tcp_connects_count", "shop", ONE): 3,
        ("fly_app_tcp_disconnects_count", "shop", ONE): 1,
        ("hawker_edge_app_held", "shop"): 9,
        ("hawker_edge_app_events", "shop", "errors_PR01"): 7,
        ("hawker_edge_app_wake_seconds_count", "shop"): 3,
        ("hawker_edge_app_verdicts", "shop", "go"): 8,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert ("fly_app_concurrency", "shop", TWO) not in found, "it is gone"


@pytest.mark.parametrize("family", EDGE_FAMILIES, ids=lambda family: str(family.name))
def test_a_family_has_the_labels_that_its_line_in_the_docs_names(family: object) -> None:
    found = {
        each.name: each for each in text_string_to_metric_families(edge_page(whole(), {ONE: SHOP})) if each.samples
    }
    told = next(each for each in EDGE_FAMILIES if each is family)
    of_it = found[told.name.removesuffix("_total")]
    assert of_it.type == told.kind
    assert {label for sample in of_it.samples for label in sample.labels} - {"le"} == set(told.labels)


def test_an_app_of_which_nothing_was_counted_has_no_series_but_what_waits() -> None:
    assert read(EdgeReport(call=1, apps=(AppFigure(app=SHOP),))) == {("hawker_edge_app_held", "shop"): 0}


def test_the_figures_of_an_older_edge_are_read() -> None:
    old = AppFigure(app=SHOP, statuses={"200": 1}, buckets=TIMES.buckets, seconds=1.0, connects=1)
    assert read(EdgeReport(call=1, apps=(old,)))["fly_edge_tcp_connects_count", "shop"] == 1

"""What a collector receives, told by a server that decodes it; and what becomes of spans when there is none."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from hawker.observe.otlp import OtlpExporter, traces_url
from hawker.observe.spans import SpanOrigin
from tests.observe.otlp_server import Received, collecting, values
from tests.observe.spans import span

ORIGIN = SpanOrigin(node="0123abcd", region="mad", version="1.2.3")


@pytest.fixture
def received() -> Iterator[Received]:
    with collecting() as server:
        yield server


def test_a_collector_receives_the_span_and_whose_it_is(received: Received) -> None:
    exporter = OtlpExporter(received.url, ORIGIN)
    assert exporter.export([span("create", parent=7), span("stop", error="no room")]) is None
    exporter.close()
    [whole] = received.requests[0].resource_spans
    about = values(whole.resource.attributes)
    assert (about["service.name"], about["service.instance.id"], about["hawker.region"]) == (
        "hawker",
        "0123abcd",
        "mad",
    )
    good, bad = whole.scope_spans[0].spans
    assert (good.name, good.trace_id.hex()) == ("create", "01563e3ab5d3d6764c61efb99302bd5b")
    assert (good.span_id.hex(), good.parent_span_id.hex()) == ("4c61efb99302bd5b", "0000000000000007")
    assert (good.start_time_unix_nano, good.end_time_unix_nano) == (
        1_700_000_000_250_000_000,
        1_700_000_001_500_000_000,
    )
    assert values(good.attributes) == {"hawker.flow": "create", "hawker.attempt": 2}
    assert (good.status.code, bad.status.code, bad.status.message) == (1, 2, "no room")
    assert received.paths == ["/v1/traces"]


def test_a_collector_that_refuses_is_a_reason_and_says_nothing_itself(
    received: Received, caplog: pytest.LogCaptureFixture
) -> None:
    received.status = 400
    exporter = OtlpExporter(received.url, ORIGIN)
    reason = exporter.export([span()])
    exporter.close()
    assert reason is not None and "400" in reason
    assert caplog.records == []


def test_no_collector_is_a_reason(received: Received) -> None:
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        exporter = OtlpExporter(f"http://127.0.0.1:{unused.getsockname()[1]}", ORIGIN)
        threading.Thread(target=exporter.close).start()  # so that it is not tried again
        assert exporter.export([span()])


@pytest.mark.parametrize(
    "given", ["http://collector:4318", "http://collector:4318/", "http://collector:4318/v1/traces"]
)
def test_the_endpoint_is_a_base_to_which_the_path_of_traces_is_added(given: str) -> None:
    assert traces_url(given) == "http://collector:4318/v1/traces"

"""A node that is watched: what Prometheus reads of it, and the spans that a collector receives."""

import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from hawker.api.client import Client
from hawker.api.contract.node import METRICS
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.observe.otlp_server import Received, collecting, values
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
PROCESS = ("--driver", "process", "--ephemeral")


@pytest.fixture(scope="module")
def received() -> Iterator[Received]:
    with collecting() as server:
        yield server


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, received: Received) -> Iterator[RunningNode]:
    with running_node(
        tmp_path_factory.mktemp("node"), "--ephemeral", *PROCESS, "--otel-endpoint", received.url
    ) as node:
        yield node


async def _measured(client: Client) -> dict[tuple[str, ...], float]:
    """Values by name and the values of the labels, which come in the order of their names."""
    text = await client.call(METRICS)
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {(each.name.removeprefix("hawker_"), *each.labels.values()): each.value for each in samples}


async def _live_and_die(client: Client, name: str) -> str:
    """A machine from its order to its end; its id."""
    shop = await Shop(client, name).open()
    machine = await shop.run({"image": HELLO, "init": {"exec": ["/bin/sleep", "60"]}})
    await shop.stop(machine.id)
    await shop.wait(machine.id, "stopped")
    await shop.close()
    return str(machine.id)


async def test_the_work_of_a_node_is_measured(node: RunningNode) -> None:
    async with node.client() as client:
        before = await _measured(client)
        await _live_and_die(client, "measured")
        for flow in ("create", "stop", "destroy"):
            await eventually(partial(_is_done, client, flow, before.get(("runs_ended_total", flow, "done"), 0) + 1))
        await eventually(partial(_has_lag, client))
        found = await _measured(client)
    assert found["step_attempts_total", "create", "done", "launch"] >= 1
    assert found["store_commit_duration_seconds_count", "durable"] > 0
    assert found["api_requests_total", "POST", "/v1/apps/{app_name}/machines", "200"] >= 1
    assert found["process_resident_memory_bytes",] > 1 << 20


async def _is_done(client: Client, flow: str, count: float) -> bool:
    return (await _measured(client)).get(("runs_ended_total", flow, "done"), 0) >= count


async def _has_lag(client: Client) -> bool:
    return (await _measured(client))["event_loop_lag_seconds_count",] > 0


async def test_prometheus_reads_it_with_the_nodes_token_and_nobody_without(node: RunningNode) -> None:
    async with aiohttp.ClientSession() as scraper:
        async with scraper.get(f"{node.url}/metrics") as refused:
            assert refused.status == 401
        headers = {"Authorization": f"Bearer {node.token}"}
        async with scraper.get(f"{node.url}/metrics", headers=headers) as response:
            assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_a_run_is_a_trace_of_its_steps_and_of_its_children(node: RunningNode, received: Received) -> None:
    async with node.client() as client:
        await _live_and_die(client, "traced")

    def named(name: str) -> list[Span]:
        return [span for span in received.spans() if span.name == name]

    [pull] = await eventually(lambda: named("pull"))  # the first machine's: the others found the image there
    create, *_ = await eventually(lambda: named("create"))
    assert (create.trace_id, create.parent_span_id) == (pull.trace_id, b"")
    assert pull.parent_span_id == create.span_id
    below = {span.name for span in received.spans() if span.parent_span_id == create.span_id}
    assert {"create.image", "create.launch", "pull"} <= below
    assert values(create.attributes)["hawker.outcome"] == "done"
    assert create.end_time_unix_nano > create.start_time_unix_nano


async def test_the_last_spans_of_a_node_that_stops_are_sent(tmp_path: Path, received: Received) -> None:
    """One that stops waits for a second at most: a collector that is too busy for that has those of a later node."""

    async def are_sent(name: str) -> bool:
        with running_node(tmp_path / name, *PROCESS, "--otel-endpoint", received.url) as node:
            async with node.client() as client:
                machine_id = await _live_and_die(client, name)
            node.stop()
        told = [span for span in received.spans() if values(span.attributes)["hawker.resource.id"] == machine_id]
        return {"create", "stop", "destroy"} <= {span.name for span in told}

    assert await are_sent("last") or await are_sent("later") or await are_sent("latest")


async def test_without_a_collector_nothing_is_slower_and_the_spans_that_are_lost_are_counted(tmp_path: Path) -> None:
    with closing(socket.socket()) as silent:  # takes connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        impatient = ("env", "OTEL_EXPORTER_OTLP_TIMEOUT=0.3")
        with running_node(tmp_path / "alone", *PROCESS, "--otel-endpoint", url, before_it=impatient) as node:
            async with node.client() as client:
                await _live_and_die(client, "alone")
                await eventually(partial(_has_dropped, client))
            await eventually(lambda: "spans cannot be sent" in node.errors)  # counted first, then told
            assert node.stop() < 30


async def _has_dropped(client: Client) -> bool:
    found = await _measured(client)
    assert found["spans_sent_total",] == 0
    return found["spans_dropped_total",] > 0


async def test_an_endpoint_that_is_no_url_is_refused_at_start(tmp_path: Path) -> None:
    node = RunningNode(tmp_path, *PROCESS, "--otel-endpoint", "collector")
    node.launch()
    assert node.ended() == 2
    assert "otel_endpoint 'collector' is not a URL" in node.errors

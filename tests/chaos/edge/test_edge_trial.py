"""Clients at the edges of real nodes, while what serves them dies."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from hawker.chaos.edge.edge_report import EdgeRow, edge_line
from hawker.chaos.edge.edge_trial import (
    EdgeBlow,
    EdgeTrialPlan,
    judged,
    machine_words,
    notes_of,
    reached,
    run_edge_trial,
)
from hawker.clock import SystemClock
from tests.e2e.web import answers, ask
from tests.ports import free_port

pytestmark = pytest.mark.anyio


async def played(plan: EdgeTrialPlan) -> list[EdgeRow]:
    told: list[EdgeRow] = []
    report = await run_edge_trial(plan, SystemClock(), told.append)
    found = [*report.findings, *(edge_line(row) for row in report.rows if row.findings)]
    assert report.found == 0, "\n".join(found)
    assert report.rows == tuple(told) and all(row.gets and row.posts for row in told)
    return told


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(3600)  # some minutes, and more on a busy host
@pytest.mark.long(
    reason="three nodes under load; tests/e2e/test_edge.py has a daemon's death, test_edge_regions.py a lost host, the "
    "simulator of edges in `make check` both"
)
async def test_a_request_is_not_lost_when_a_daemon_or_a_host_dies_or_an_edge_stands_still(tmp_path: Path) -> None:
    """The short form of `hawker chaos edge`."""
    blows = (EdgeBlow.DAEMON, EdgeBlow.STILL, EdgeBlow.HOST)
    plan = EdgeTrialPlan(nodes=3, blows=blows, away_s=6.0, where=tmp_path)
    rows = await played(plan)
    assert [(row.blow, row.host, row.gets_lost) for row in rows] == [
        ("daemon killed", 1, 0),
        ("edge process stood still", 2, 0),
        ("host without power", 3, 0),
    ]
    assert rows[0].posts_lost == rows[1].posts_lost == 0
    assert rows[1].slowest_s > plan.still_s - 1, "clients of the one that stood still waited for it"


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.long(reason="five nodes and every blow; the test above is the short form")
async def test_requests_over_five_nodes_are_not_lost_whatever_dies(tmp_path: Path) -> None:
    rows = await played(EdgeTrialPlan(where=tmp_path))
    assert [row.blow for row in rows] == [blow.value for blow in EdgeBlow]


def test_a_machine_writes_down_what_reaches_it_before_it_answers(tmp_path: Path) -> None:
    *command, _ = machine_words(tmp_path, 3)["init"]["exec"]
    port = free_port()
    app = subprocess.Popen([*command, str(port)])
    try:
        while not answers("127.0.0.1", port):
            assert app.poll() is None
        assert ask("127.0.0.1", "/7", port=port).status == 200
        assert ask("127.0.0.1", "/8", port=port, method="POST").body == "ok"
    finally:
        app.kill()
        app.wait()
    assert reached(tmp_path) == {("GET", "7"): 1, ("POST", "8"): 1}


def test_a_request_is_counted_over_all_hosts_and_a_torn_line_is_none(tmp_path: Path) -> None:
    notes_of(tmp_path, 1).write_text("GET 1\nGET \nPOST 2\n")
    notes_of(tmp_path, 2).write_text("GET 1\nPOST 2")
    assert reached(tmp_path) == {("GET", "1"): 2, ("POST", "2"): 1}


def test_a_post_reaches_machines_once_and_a_get_twice_at_most() -> None:
    assert judged(Counter({("GET", "1"): 2, ("POST", "2"): 1}), 1) == []
    assert judged(Counter({("GET", "1"): 3}), 0) == ["GET 1 reached machines 3 times"]
    assert judged(Counter({("POST", "2"): 2}), 1) == ["POST 2 reached machines 2 times"]
    assert judged(Counter({("POST", "2"): 1}), 2) == ["2 POSTs were answered, and 1 reached a machine"]

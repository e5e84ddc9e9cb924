import json

import click
import msgspec
import pytest

from hawker.api.contract.exec import ProcessStat
from hawker.api.contract.run import RunList
from hawker.cli.commands.machine.inspect import processes_table
from hawker.cli.exits import ExitStatus
from hawker.errors import Forbidden, Unavailable
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import LAUNCHED, STARTED, FakeNode, check, exit_event, machine
from tests.cli.histories import history


def test_the_status_has_the_machine_its_checks_events_and_last_run(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web", checks=(check("passing"),)))
    text = hawker("machine", "status", "web").out
    for word in ("digest", "http-80", "passing", "launch", "rootfs", "37.1 ms"):
        assert word in text
    assert node.call("list_runs").query.resource_id == "3d8f0000000001"
    assert node.call("get_machine").query.include_leases is True


def test_the_status_as_json(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    shown = msgspec.json.decode(hawker("machine", "show", "web", "-o", "json").out)
    assert (shown["app"], shown["machine"]["name"], shown["last_run"]["flow"]) == ("shop", "web", "create")


def test_a_token_of_an_app_sees_the_machine_without_its_runs(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    node.failures["list_runs"] = Forbidden("this token does not allow r on the node")
    said = hawker("machine", "status", "web")
    assert said.status == ExitStatus.OK and "digest" in said.out and "rootfs" not in said.out


def test_a_machine_whose_runs_are_forgotten_has_none(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    node.runs = RunList(runs=())
    said = hawker("machine", "status", "web")
    assert said.status == ExitStatus.OK
    assert "rootfs" not in said.out


def test_processes_are_listed_with_what_they_listen_on(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    row = hawker("machine", "ps", "web").out.splitlines()[1]
    assert row.split() == ["7", "3", "%", "2.0", "KiB", "61", "s", "tcp:[::]:80", "web"]


def test_processes_of_containers_say_whose_they_are() -> None:
    web = ProcessStat(
        pid=7, stime=0, rtime=61, command="nginx", directory="/", cpu=3, rss=2048, listen_sockets=(), container="web"
    )
    head, row = (line.split() for line in click.unstyle(processes_table([web])).splitlines())
    assert (head[:2], row[:2]) == (["PID", "CONTAINER"], ["7", "web"])


def test_use_is_of_the_time_between_two_looks(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    heading, row = hawker("stats", "web").out.splitlines()
    assert heading.split()[:4] == ["NAME", "CPU", "HELD", "MEMORY"]
    assert row.split() == ["web", "50.0%", "-", "2.0M", "256.0M", "3", "0", "1.0K/2.0K", "-"]


def test_use_as_json(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    (found,) = msgspec.json.decode(hawker("stats", "-o", "json").out)
    assert (found["app"], found["name"], found["cpu_percent"]) == ("shop", "web", 50.0)
    assert found["stats"]["memory_limit_bytes"] == 256 << 20


def test_nothing_that_runs_is_said(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    said = hawker("stats")
    assert (said.status, said.err) == (0, "no machine runs\n")
    assert node.calls.get("machine_stats") is None
    node.add("shop", machine(state=State.STOPPED))


def test_events_are_listed_newest_first_with_their_reason(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web", events=(exit_event(3), STARTED, LAUNCHED)))
    _, newest, *_ = hawker("machine", "events", "web").out.splitlines()
    assert newest.endswith("it exited with status 3")


def test_events_may_be_fewer_and_json(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web", events=(exit_event(3), STARTED, LAUNCHED)))
    shown = msgspec.json.decode(hawker("machine", "events", "web", "-n", "2", "-o", "json").out)
    assert [event["type"] for event in shown] == ["exit", "start"]


@pytest.mark.parametrize("limit", ["0", "51"])
def test_a_number_of_events_out_of_range_is_refused_here(node: FakeNode, hawker: Hawker, limit: str) -> None:
    done = hawker("machine", "events", "db", "--limit", limit)
    assert done.status == ExitStatus.USAGE and f"{limit} is not in the range 1<=x<=50" in done.err


def test_versions_are_listed_with_what_differs_most(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    row = hawker("machine", "versions", "web").out.splitlines()[1]
    assert row.split() == ["01V1", "registry.local/web:3", "1", "shared", "256", "MiB"]


GONE = "3d8f00000000aa"


def test_a_machine_that_only_the_archive_has_is_found_by_its_id(node: FakeNode, hawker: Hawker) -> None:
    node.histories[GONE] = history(GONE)
    said = hawker("machine", "history", GONE)
    assert said.status == 0 and f"machine  {GONE}" in said.out and "launch: created by the user" in said.out
    assert "list_apps" not in node.calls


def test_a_machine_that_the_node_has_is_also_found_by_its_name(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    node.histories["3d8f0000000001"] = history()
    for reference in ("web", "3d8f", "3d8f0000000001"):
        assert "machine  3d8f0000000001" in hawker("machine", "history", reference).out


def test_steps_come_with_runs(node: FakeNode, hawker: Hawker) -> None:
    node.histories[GONE] = history(GONE)
    assert "create.rootfs" not in hawker("machine", "history", GONE).out
    assert "create.rootfs: done in 37.1 ms" in hawker("machine", "history", "--runs", GONE).out


def test_programs_get_all_of_it(node: FakeNode, hawker: Hawker) -> None:
    node.histories[GONE] = history(GONE)
    found = json.loads(hawker("machine", "history", "-o", "json", GONE).out)
    assert (found["kept"], found["runs"][0]["steps"][0]["error"]) == ("archive", "no space left")


def test_an_unknown_machine_is_not_found(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("machine", "history", GONE)
    assert (said.status, said.out) == (3, "") and f"machine '{GONE}' not found" in said.err


def test_an_archive_that_does_not_answer_is_no_unknown_machine(node: FakeNode, hawker: Hawker) -> None:
    node.failures["machine_history"] = Unavailable("the archive s3://old cannot be reached")
    said = hawker("machine", "history", GONE)
    assert said.status == 5 and "cannot be reached" in said.err

import json

from hawker.catalog.schema import shipped
from hawker.cli.exits import ExitStatus
from hawker.errors import NotServed
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_rows_are_a_table(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("catalog", "query", "SELECT * FROM machines WHERE id = ?", "-p", "x", "--timeout", "5")
    assert [line.split() for line in said.out.splitlines()][:2] == [
        ["ID", "STATE", "DATA"],
        ["3d8f", "started", "00ff"],
    ]
    body = node.call("query_catalog").body
    assert (body.query, body.params, body.timeout) == ("SELECT * FROM machines WHERE id = ?", ("x",), 5)


def test_rows_as_json(hawker: Hawker) -> None:
    lines = hawker("catalog", "query", "SELECT 1", "--json").out.splitlines()
    assert json.loads(lines[0]) == {"id": "3d8f", "state": "started", "data": [0, 255]}
    assert len(lines) == 2


def test_rows_as_csv(hawker: Hawker) -> None:
    said = hawker("catalog", "query", "SELECT 1", "--csv")
    assert said.out == 'id,state,data\n3d8f,started,00ff\n4e9a,"a ""b"", c",\n'


def test_one_form_at_a_time(hawker: Hawker) -> None:
    assert hawker("catalog", "query", "SELECT 1", "--csv", "--json").status == ExitStatus.USAGE


def test_changes_follow_the_rows(hawker: Hawker) -> None:
    lines = hawker("catalog", "subscribe", "SELECT 1").out.splitlines()
    assert lines[:2] == ["  ID  STATE  DATA", "  3d8f  started  00ff"]
    assert [line[0] for line in lines[3:]] == ["+", "=", "-"]
    assert "\x1b" not in lines[4]


def test_changes_as_json(hawker: Hawker) -> None:
    lines = hawker("catalog", "subscribe", "SELECT 1", "--json").out.splitlines()
    assert json.loads(lines[3]) == {"complete": True}
    assert json.loads(lines[4]) == {"row": ["5f", "created", None], "change": "insert"}


def test_a_node_without_a_cluster_says_so(node: FakeNode, hawker: Hawker) -> None:
    node.failures["query_catalog"] = NotServed("this node is alone and has no catalog")
    said = hawker("catalog", "query", "SELECT 1")
    assert said.status != 0
    assert "this node is alone and has no catalog" in said.err


def test_the_schema_for_an_agent_is_printed_as_it_is_shipped(hawker: Hawker) -> None:
    said = hawker("catalog", "schema")
    assert (said.status, said.out) == (ExitStatus.OK, shipped())

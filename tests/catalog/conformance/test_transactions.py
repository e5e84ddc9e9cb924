import json
from typing import Any

import pytest

from tests.catalog.conformance.agents import Agent

_INSERT = "INSERT INTO conformance (node, id, text, data, number) VALUES "


async def test_a_write_says_what_it_did(agent: Agent) -> None:
    answer = await agent.put(1, "one")
    assert set(answer) == {"results", "time", "version", "actor_id"}
    assert answer["results"][0]["rows_affected"] == 1
    assert answer["results"][0]["time"] >= 0
    assert answer["version"] >= 1
    assert len(answer["actor_id"]) == 32
    assert int(answer["actor_id"], 16) >= 0
    again = await agent.put(1, "two")
    assert again["version"] > answer["version"]


async def test_a_statement_that_changes_nothing_has_no_version(agent: Agent) -> None:
    await agent.put(1, "one")
    answer = await agent.write("UPDATE conformance SET text = text")
    assert answer["version"] is None
    assert answer["results"][0]["rows_affected"] >= 0


async def test_all_forms_of_a_statement(agent: Agent) -> None:
    await agent.write(
        f"{_INSERT} ('{agent.node}', 1, 'simple', NULL, NULL)",
        [f"{_INSERT} (?, 2, ?, NULL, NULL)", [agent.node, "listed"]],
        [f"{_INSERT} (:node, 3, @text, NULL, NULL)", {":node": agent.node, "@text": "named"}],
        {"query": f"{_INSERT} (?, 4, ?, NULL, NULL)", "params": [agent.node, "verbose"]},
        {"query": f"{_INSERT} ($node, 5, 'named too', NULL, NULL)", "named_params": {"$node": agent.node}},
        {
            "query": f"{_INSERT} (?, 6, 'both', NULL, NULL)",
            "params": [agent.node],
            "named_params": {":unused": 1},
        },
        {"query": f"{_INSERT} ('{agent.node}', 7, 'bare', NULL, NULL)", "params": None, "named_params": None},
    )
    rows = await agent.rows("SELECT text FROM conformance ORDER BY id")
    assert [text for (text,) in rows] == ["simple", "listed", "named", "verbose", "named too", "both", "bare"]


@pytest.mark.parametrize(
    ("param", "kind", "value"),
    [
        (None, "null", None),
        (True, "integer", 1),
        (False, "integer", 0),
        (7, "integer", 7),
        (-(2**63), "integer", -(2**63)),
        (2**63, "real", float(2**63)),
        (1.5, "real", 1.5),
        ("text", "text", "text"),
        ("ünï", "text", "ünï"),
        ([0, 1, 255], "blob", [0, 1, 255]),
        ([], "blob", []),
    ],
)
async def test_values_there_and_back(agent: Agent, param: Any, kind: str, value: Any) -> None:
    await agent.write([f"{_INSERT} (?, 1, '', ?, NULL)", [agent.node, param]])
    assert await agent.rows("SELECT typeof(data), data FROM conformance") == [[kind, value]]


@pytest.mark.parametrize("param", ['{"a": [1, 2]}', "[1,256]", '["a"]', "[1.5]"])
async def test_other_json_as_a_parameter(agent: Agent, param: str) -> None:
    """Stored as its text. Corrosion means to, and refuses it in words that are no JSON."""
    body = f'[["{_INSERT} (?, 1, ?, NULL, NULL)", ["{agent.node}", {param}]]]'.encode()
    status, answer = await agent.http.call("POST", "/v1/transactions", body)
    if agent.corrosion:
        assert (status, b"did not match any variant" in answer) == (422, True)
        return
    assert status == 200, answer
    ((text,),) = await agent.rows("SELECT text FROM conformance")
    assert json.loads(text) == json.loads(param)


async def test_no_statements(agent: Agent) -> None:
    status, answer = await agent.http.ask("POST", "/v1/transactions", [])
    assert status == 400
    assert answer["results"] == [{"error": "at least 1 statement is required"}]
    assert (answer["time"], answer["version"]) == (0.0, None)


@pytest.mark.parametrize(
    "statement",
    [
        "SELEC",
        "INSERT INTO nowhere VALUES (1)",
        ["INSERT INTO conformance (node, id) VALUES (?, ?)", ["only one"]],
        ["INSERT INTO conformance (node, id) VALUES ('x', :id)", {":other": 1}],
    ],
)
async def test_one_failure_undoes_all(agent: Agent, statement: object) -> None:
    first = [f"{_INSERT} (?, 1, 'first', NULL, NULL)", [agent.node]]
    status, answer = await agent.http.ask("POST", "/v1/transactions", [first, statement])
    assert status == 500
    assert len(answer["results"]) == 1
    assert answer["results"][0]["error"]
    assert answer["version"] is None
    assert await agent.rows("SELECT * FROM conformance") == []


async def test_a_transaction_that_takes_too_long_is_undone(agent: Agent) -> None:
    endless = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    status, answer = await agent.http.ask("POST", "/v1/transactions?timeout=1", [endless])
    assert status == 500
    assert answer["results"][0]["error"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"[", "application/json", 400),
        (b"", "application/json", 400),
        (b"{}", "application/json", 422),
        (b"[1]", "application/json", 422),
        (b'[["SELECT 1"]]', "application/json", 422),
        (b'["DELETE FROM conformance"]', "text/plain", 415),
        (b'["DELETE FROM conformance"]', "application/json; charset=utf-8", 200),
        (b'["DELETE FROM conformance"]', "application/more+json", 200),
    ],
)
async def test_a_body_that_is_no_list_of_statements(agent: Agent, body: bytes, kind: str, status: int) -> None:
    given, _ = await agent.http.call("POST", "/v1/transactions", body, {"content-type": kind})
    assert given == status


async def test_a_reading_statement_in_a_transaction(agent: Agent) -> None:
    """Corrosion refuses rows that nobody asked for."""
    await agent.put(1, "one")
    status, answer = await agent.http.ask("POST", "/v1/transactions", ["SELECT id FROM conformance"])
    assert status == (500 if agent.corrosion else 200)
    assert ("error" in answer["results"][0]) == agent.corrosion


async def test_many_rows_in_one_transaction(agent: Agent) -> None:
    statements = [[f"{_INSERT} (?, ?, 'many', NULL, NULL)", [agent.node, number]] for number in range(500)]
    answer = await agent.write(*statements)
    assert len(answer["results"]) == 500
    assert await agent.rows("SELECT count(*) FROM conformance") == [[500]]

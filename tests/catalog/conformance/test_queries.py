import pytest

from tests.catalog.conformance.agents import Agent


async def test_lines_of_an_answer(agent: Agent) -> None:
    await agent.put(2, "two")
    await agent.put(1, "one")
    query = "SELECT id AS number, text FROM conformance ORDER BY id"
    async with agent.http.open("POST", "/v1/queries", query) as answer:
        assert answer.status == 200
        assert "corro-query-id" not in answer.headers
        columns, first, second, end = await answer.rest()
    assert columns == {"columns": ["number", "text"]}
    assert (first, second) == ({"row": [1, [1, "one"]]}, {"row": [2, [2, "two"]]})
    assert list(end) == ["eoq"]
    assert end["eoq"]["time"] >= 0
    assert "change_id" not in end["eoq"]


async def test_no_rows(agent: Agent) -> None:
    async with agent.http.open("POST", "/v1/queries", "SELECT id FROM conformance") as answer:
        columns, end = await answer.rest()
    assert columns == {"columns": ["id"]}
    assert "eoq" in end


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        ["SELECT ?", [1]],
        ["SELECT :a", {":a": 1}],
        {"query": "SELECT ?", "params": [1]},
        {"query": "SELECT @a", "named_params": {"@a": 1}},
    ],
)
async def test_all_forms_of_a_statement(agent: Agent, statement: object) -> None:
    assert await agent.rows(statement) == [[1]]


async def test_values(agent: Agent) -> None:
    assert await agent.rows("SELECT NULL, 1, 1.5, 'a', x'00ff', 9e999") == [[None, 1, 1.5, "a", [0, 255], None]]


@pytest.mark.parametrize(
    "statement",
    [
        "SELEC",
        "SELECT * FROM nowhere",
        "SELECT nothing FROM conformance",
        "INSERT INTO conformance (node, id) VALUES ('a', 1)",
        "DELETE FROM conformance",
        "UPDATE conformance SET text = 'x'",
        "CREATE TABLE other (a)",
        "DROP TABLE conformance",
        "SELECT 1; SELECT 2",
    ],
)
async def test_a_query_is_refused_before_it_runs(agent: Agent, statement: object) -> None:
    await agent.put(1, "one")
    status, answer = await agent.http.ask("POST", "/v1/queries", statement)
    assert status == 400
    assert answer["error"]
    assert await agent.rows("SELECT text FROM conformance") == [["one"]]


@pytest.mark.parametrize("statement", [["SELECT ?", [1, 2]], ["SELECT ?", []], ["SELECT :a", {":a": 1, ":b": 2}]])
async def test_parameters_that_do_not_fit(agent: Agent, statement: object) -> None:
    """Corrosion takes them for a failure of its own."""
    status, answer = await agent.http.ask("POST", "/v1/queries", statement)
    assert status == (500 if agent.corrosion else 400)
    assert answer["error"]


async def test_a_write_is_called_by_its_name(agent: Agent) -> None:
    status, answer = await agent.http.ask("POST", "/v1/queries", "DELETE FROM conformance")
    assert (status, answer) == (400, {"error": "statement is not readonly"})


async def test_a_query_that_fails_while_it_runs_ends_in_an_error(agent: Agent) -> None:
    await agent.put(1, "one")
    query = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n WHERE x < 0"
    async with agent.http.open("POST", "/v1/queries?timeout=1", query) as answer:
        lines = await answer.rest()
    assert "error" in lines[-1]


async def test_many_rows(agent: Agent) -> None:
    query = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 5000) SELECT x, 'text' FROM n"
    async with agent.http.open("POST", "/v1/queries", query) as answer:
        lines = await answer.rest()
    assert [line["row"] for line in lines[1:-1]] == [[x, [x, "text"]] for x in range(1, 5001)]


@pytest.mark.parametrize(("path", "method", "status"), [("/v1/nothing", "POST", 404), ("/v1/queries", "GET", 405)])
async def test_a_table_that_is_not_there(agent: Agent, path: str, method: str, status: int) -> None:
    given, _ = await agent.http.call(method, path)
    assert given == status

import msgspec
import pytest

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, chunk, machine


@pytest.fixture(autouse=True)
def _machine(node: FakeNode) -> None:
    node.add("shop", machine(name="web"))
    node.chunks = (chunk(0, b"out\n"), chunk(1, b"err\n", stream=2), chunk(2, b"no line end"))


def test_output_goes_to_the_stream_that_it_came_from(hawker: Hawker) -> None:
    said = hawker("machine", "logs", "web")
    assert (said.status, said.out, said.err) == (ExitStatus.OK, "out\nno line end", "err\n")


def test_following_and_the_number_of_lines_are_the_nodes_to_do(node: FakeNode, hawker: Hawker) -> None:
    hawker("machine", "logs", "-f", "-n", "10", "web")
    query = node.call("machine_logs").query
    assert (query.follow, query.tail) == (True, 10)


def test_json_is_one_piece_a_line(hawker: Hawker) -> None:
    lines = hawker("machine", "logs", "web", "-o", "json").out.splitlines()
    assert [msgspec.json.decode(line)["stream"] for line in lines] == [1, 2, 1]


def test_lines_of_containers_say_whose_they_are(node: FakeNode, hawker: Hawker) -> None:
    node.chunks = tuple(msgspec.structs.replace(each, container="web") for each in node.chunks)
    said = hawker("machine", "logs", "web")
    assert (said.out, said.err) == ("web | out\nweb | no line end", "web | err\n")

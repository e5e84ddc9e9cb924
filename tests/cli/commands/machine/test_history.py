import json

from hawker.errors import Unavailable
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine
from tests.cli.histories import history

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

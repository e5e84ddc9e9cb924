import msgspec
import pytest

from hawker.api.contract.node import FindingInfo
from hawker.errors import Unavailable
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode

LOST = FindingInfo(kind="lost rootfs", about="3d8f0000000001", detail="it is not mounted", repair="mount it", by="node")
FOREIGN = FindingInfo(kind="foreign instance", about="3d8f0000000002", detail="it runs", repair="end it", by="force")


def test_a_node_with_nothing_wrong_says_so_with_status_0(hawker: Hawker) -> None:
    assert hawker("node", "doctor") == hawker("node", "doctor", "--repair")
    said = hawker("node", "doctor")
    assert (said.status, said.out) == (0, "nothing is wrong\n")


def test_a_finding_is_a_table_and_status_1(hawker: Hawker, node: FakeNode) -> None:
    node.findings = (LOST,)
    said = hawker("node", "doctor")
    assert said.status == 1
    head, row = said.out.splitlines()
    assert head.split() == ["FINDING", "ABOUT", "WHAT", "IS", "WRONG", "REPAIR"]
    assert row.split("  ") == ["lost rootfs", LOST.about, "it is not mounted", "mount it"]
    assert "repair_findings" not in node.calls


@pytest.mark.parametrize("words", [("--json",), ("-o", "json")])
def test_findings_as_json(hawker: Hawker, node: FakeNode, words: tuple[str, ...]) -> None:
    node.findings = (LOST,)
    said = hawker("node", "doctor", *words)
    assert said.status == 1
    (finding,) = msgspec.json.decode(said.out)["findings"]
    assert (finding["kind"], finding["about"], finding["by"]) == ("lost rootfs", LOST.about, "node")


def test_a_mended_finding_is_no_reason_for_status_1(hawker: Hawker, node: FakeNode) -> None:
    node.findings = (LOST,)
    said = hawker("node", "doctor", "--repair")
    assert said.status == 0 and "done: mount it" in said.out
    assert not node.call("repair_findings").body.end_foreign


def test_a_finding_left_alone_is(hawker: Hawker, node: FakeNode) -> None:
    node.findings = (LOST, FOREIGN)
    said = hawker("node", "doctor", "--repair")
    assert said.status == 1 and "left alone: end it" in said.out
    assert hawker("node", "doctor", "--repair", "--end-foreign").status == 0


def test_a_repair_that_failed_says_why(hawker: Hawker, node: FakeNode) -> None:
    node.findings = (msgspec.structs.replace(LOST, error="input/output error"),)
    said = hawker("node", "doctor", "--repair")
    assert said.status == 1 and "failed: input/output error" in said.out


def test_ending_what_is_foreign_is_a_repair(hawker: Hawker, node: FakeNode) -> None:
    said = hawker("node", "doctor", "--end-foreign")
    assert said.status == 2 and "--repair" in said.err and not node.calls


def test_a_node_that_cannot_look_is_an_error(hawker: Hawker, node: FakeNode) -> None:
    node.failures["list_findings"] = Unavailable("the host cannot be looked at now")
    said = hawker("node", "doctor")
    assert said.status == 5 and "cannot be looked at" in said.err

import pytest

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_quotas_are_shown_as_used_and_limit_over_the_fleet(hawker: Hawker) -> None:
    heading, org, every = hawker("quotas", "show").out.splitlines()
    assert heading.split()[:4] == ["SUBJECT", "MACHINES", "CPUS", "MEMORY"]
    assert org.split()[:3] == ["org/acme", "3/5", "1/-"]
    assert every.split()[:3] == ["org/*", "5", "-"]


def test_a_quota_is_set_by_its_limits(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("quotas", "set", "org/acme", "--machines", "5", "--disk-mb", "1024").status == 0
    call = node.call("put_quota")
    assert (call.params.kind, call.params.name) == ("org", "acme")
    assert (call.body.machines, call.body.disk_mb, call.body.cpus) == (5, 1024, None)


def test_a_quota_is_cleared(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("quotas", "clear", "org/*").out == "org/acme\n"
    assert node.call("clear_quota").params.name == "*"


@pytest.mark.parametrize(
    "words", [("set", "acme", "--machines", "1"), ("set", "org/acme"), ("set", "org/", "--cpus", "1"), ("clear", "x/y")]
)
def test_a_wrong_subject_or_no_limit_is_told(hawker: Hawker, words: tuple[str, ...]) -> None:
    assert hawker("quotas", *words).status == ExitStatus.USAGE

from tests.tidy import shape
from tests.tidy.rules import RULES, Allowed, broken, unneeded
from tests.tidy.tree import tree_of

TREE = tree_of({"src/hawker/utils.py": "", "src/hawker/misc.py": ""})
UTILS = Allowed("telling_names", "src/hawker/utils.py", "utils", "because this is a test")


def test_an_exception_covers_its_own_finding_only() -> None:
    assert [finding.path for finding in broken(shape.telling_names, TREE, [UTILS])] == ["src/hawker/misc.py"]


def test_an_exception_for_another_rule_covers_nothing() -> None:
    other = Allowed("file_size", "src/hawker/*", "*", "because this is a test")
    assert len(broken(shape.telling_names, TREE, [other])) == 2


def test_an_exception_may_name_a_pattern() -> None:
    both = Allowed("telling_names", "src/hawker/*.py", "*", "because this is a test")
    assert broken(shape.telling_names, TREE, [both]) == []


def test_an_exception_that_nothing_needs_is_told() -> None:
    stale = Allowed("telling_names", "src/hawker/base.py", "base", "because this is a test")
    assert unneeded(TREE, [UTILS, stale]) == [stale]


def test_a_finding_reads_like_a_compiler_message() -> None:
    assert str(broken(shape.telling_names, TREE, [UTILS])[0]) == (
        "src/hawker/misc.py:1: `misc` says nothing [telling_names: misc]"
    )


def test_every_rule_names_itself_in_what_it_finds_and_says_why() -> None:
    assert len({rule.__name__ for rule in RULES}) == len(RULES)
    assert all(rule.__doc__ for rule in RULES)

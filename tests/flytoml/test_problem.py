"""Problems and their places."""

from hawker.flytoml.document import read
from hawker.flytoml.problem import MAX_PROBLEMS, Problems, dotted


def test_a_problem_is_at_the_deepest_part_that_is_there() -> None:
    problems = Problems(read("a = 1\n[b]\nc = [1, 2]\n", ".toml"))
    problems.add(("b", "c", 1, "x"), "bad")
    assert problems.sorted()[0].line_of("f") == "f:3:9: b.c[1].x: bad"


def test_errors_come_before_warnings() -> None:
    problems = Problems(read("a = 1\nb = 2\n", ".toml"))
    problems.add(("a",), "may be bad", warning=True)
    problems.add(("b",), "bad")
    assert [each.line_of("f") for each in problems.sorted()] == ["f:2:1: b: bad", "f:1:1: warning: a: may be bad"]


def test_problems_are_bounded_and_an_error_is_among_them() -> None:
    problems = Problems(read("a = 1", ".toml"))
    for _ in range(2 * MAX_PROBLEMS):
        problems.add((), "may be bad", warning=True)
    problems.add((), "bad")
    problems.add((), "bad, too")
    assert len(problems.found) == MAX_PROBLEMS + 1 and problems.errors


def test_a_long_key_is_cut() -> None:
    assert dotted(("a", 0, "b" * 100)) == "a[0]." + "b" * 80

import click
import pytest

from hawker.cli import notation
from hawker.cli.notation import LocalFile, OneOf, Variable, Written, moment
from hawker.machine import State


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        ("512m", 512),
        ("512M", 512),
        ("512MiB", 512),
        ("512mb", 512),
        ("1g", 1024),
        ("1.5GiB", 1536),
        ("1t", 1024 * 1024),
        ("2048k", 2),
        ("1k", 1),
        ("0", 0),
    ],
)
def test_memory_is_written_as_people_write_it(text: str, mib: int) -> None:
    assert notation.memory_mib(text) == mib


@pytest.mark.parametrize("text", ["", "m", "-1", "1x", "1 2", "1e9", "9" * 13])
def test_a_text_that_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount of memory"):
        notation.memory_mib(text)


def test_a_pair_may_have_an_empty_value_and_more_signs() -> None:
    assert notation.pair("a=b=c") == ("a", "b=c")
    assert notation.pair("a=") == ("a", "")


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_a_pair_needs_a_key_and_a_sign(text: str) -> None:
    with pytest.raises(ValueError, match="KEY=VALUE"):
        notation.pair(text)


def test_a_variable_without_a_value_differs_from_an_empty_one() -> None:
    assert notation.variable("A") == Variable("A", None)
    assert notation.variable("A=") == Variable("A", "")
    with pytest.raises(ValueError, match="NAME=VALUE"):
        notation.variable("=1")


def test_a_file_of_variables_may_have_comments_and_empty_lines() -> None:
    assert notation.variables("# first\n\nA=1\r\n  B \n") == (Variable("A", "1"), Variable("B"))


def test_a_file_of_variables_is_read_as_docker_reads_it() -> None:
    read = notation.variables('\ufeffA="x" \nB= y #z\nC=\nD=a=b\n')
    assert read == (Variable("A", '"x" '), Variable("B", " y #z"), Variable("C", ""), Variable("D", "a=b"))
    for text in ('export B="x"', "A B=1"):
        with pytest.raises(ValueError, match="has a blank in its name"):
            notation.variables(text)


def test_a_local_file_goes_to_an_absolute_path() -> None:
    assert notation.local_file("/etc/a=b=c") == LocalFile("/etc/a", "b=c")
    for text in ("etc/a=b", "/etc/a", "/etc/a="):
        with pytest.raises(ValueError, match="/path/in/machine"):
            notation.local_file(text)


def test_words_are_split_as_a_shell_splits_them() -> None:
    assert notation.words("sh -c 'a b'") == ("sh", "-c", "a b")
    with pytest.raises(ValueError, match="closing quotation"):
        notation.words("'a")


def test_times_are_seconds_or_durations() -> None:
    assert notation.seconds("90") == notation.seconds("1m30s") == 90.0


def test_a_moment_is_a_time_or_so_long_ago() -> None:
    assert moment("2026-01-02T03:04:05Z") == 1767323045
    assert moment("1h") < moment("90") < moment("2999-01-01")
    with pytest.raises(ValueError, match="'tomorrow' is neither a length of time such as 90, 10m or 2h nor a time"):
        moment("tomorrow")


def test_a_refusal_is_shown_as_the_options() -> None:
    with pytest.raises(click.BadParameter, match="not an amount of memory"):
        Written(notation.memory_mib, "memory").convert("much", None, None)


def test_one_of_an_enum_is_its_member() -> None:
    assert OneOf(State).convert("started", None, None) is State.STARTED
    with pytest.raises(click.BadParameter, match="'running' is not one of"):
        OneOf(State).convert("running", None, None)

import click
import pytest

from hawker.cli import notation
from hawker.cli.notation import LocalFile, OneOf, Variable, Written
from hawker.config import MachineCheck, MachineRestart
from hawker.config.machine import Mount
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
def test_what_is_no_memory_is_refused(text: str) -> None:
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


def test_a_local_file_goes_to_an_absolute_path() -> None:
    assert notation.local_file("/etc/a=b=c") == LocalFile("/etc/a", "b=c")
    for text in ("etc/a=b", "/etc/a", "/etc/a="):
        with pytest.raises(ValueError, match="/path/in/machine"):
            notation.local_file(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no", MachineRestart(policy="no")),
        ("never", MachineRestart(policy="no")),
        ("always", MachineRestart(policy="always")),
        ("on-failure", MachineRestart(policy="on-failure")),
        ("on-failure:3", MachineRestart(policy="on-failure", max_retries=3)),
    ],
)
def test_restart_policies(text: str, expected: MachineRestart) -> None:
    assert notation.restart(text) == expected


@pytest.mark.parametrize("text", ["", "sometimes", "on-failure:", "on-failure:x", "no:-1"])
def test_other_restart_policies_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="on-failure:RETRIES"):
        notation.restart(text)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("tcp:5432", "tcp-5432", MachineCheck(type="tcp", port=5432)),
        ("http:80", "http-80", MachineCheck(type="http", port=80, path="/")),
        ("http:8080/ready?a=b", "http-8080", MachineCheck(type="http", port=8080, path="/ready?a=b")),
        ("https:443/", "https-443", MachineCheck(type="http", port=443, path="/", protocol="https")),
        (
            "web=tcp:1,interval=5,timeout=1m30s,grace=0.5",
            "web",
            MachineCheck(type="tcp", port=1, interval="5s", timeout="1m30s", grace_period="500ms"),
        ),
    ],
)
def test_checks(text: str, name: str, expected: MachineCheck) -> None:
    named = notation.check(text)
    assert (named.name, named.check) == (name, expected)


@pytest.mark.parametrize("text", ["", "tcp", "tcp:x", "tcp:80/", "udp:53", "http:80,often=5", "http:80,interval=x"])
def test_what_is_no_check_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a check|none of interval|not a duration"):
        notation.check(text)


def test_words_are_split_as_a_shell_splits_them() -> None:
    assert notation.words("sh -c 'a b'") == ("sh", "-c", "a b")
    with pytest.raises(ValueError, match="closing quotation"):
        notation.words("'a")


def test_times_are_seconds_or_durations() -> None:
    assert notation.seconds("90") == notation.seconds("1m30s") == 90.0
    assert notation.duration("90") == notation.duration("1m30s") == "1m30s"


def test_a_refusal_is_shown_as_the_options() -> None:
    with pytest.raises(click.BadParameter, match="not an amount of memory"):
        Written(notation.memory_mib, "memory").convert("much", None, None)


def test_one_of_an_enum_is_its_member() -> None:
    assert OneOf(State).convert("started", None, None) is State.STARTED
    with pytest.raises(click.BadParameter, match="'running' is not one of"):
        OneOf(State).convert("running", None, None)


def test_a_volume_is_mounted_by_name_or_by_id() -> None:
    assert notation.mount("data:/var/lib/data") == Mount(name="data", path="/var/lib/data")
    assert notation.mount("vol_0123456789abcdef:/data") == Mount(volume="vol_0123456789abcdef", path="/data")


@pytest.mark.parametrize("text", ["data", "data:", "data:relative", ":/data", "/data"])
def test_what_is_no_mount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="VOLUME:/path"):
        notation.mount(text)

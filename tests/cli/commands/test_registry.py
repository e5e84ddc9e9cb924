from io import StringIO
from pathlib import Path

import pytest

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_a_login_reads_its_password_from_stdin(node: FakeNode, hawker: Hawker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("pass word\n"))
    said = hawker("registry", "login", "reg.example", "-u", "ada", "--password-stdin", "--org", "acme")
    assert said.out == "ada is logged in at reg.example for org acme\n"
    call = node.call("put_registry_login")
    assert (call.params.org_slug, call.params.registry) == ("acme", "reg.example")
    assert (call.body.username, call.body.password, call.body.unchecked) == ("ada", "pass word", False)


def test_a_login_reads_its_password_from_a_file(node: FakeNode, hawker: Hawker, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from file\r\n")
    file = str(tmp_path / "password")
    hawker("registry", "login", "reg.example", "-u", "ada", "--password-file", file, "--realm", "x", "--no-check")
    body = node.call("put_registry_login").body
    assert (body.password, body.realm, body.unchecked) == ("from file", "x", True)


def test_a_login_without_a_name_and_nobody_to_ask_is_wrong_usage(
    hawker: Hawker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(""))
    said = hawker("registry", "login", "reg.example")
    assert said.status == ExitStatus.USAGE and "nobody to ask for the user name: give --username" in said.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--password", "secret"), "every user of this host can read"),
        ((), "nobody to ask for the password"),
        (("--password-stdin", "--password-file", "/x"), "not both"),
        (("--password-file", "/no/such"), "cannot read the password"),
        (("--password-stdin",), "there is no password"),
    ],
)
def test_a_login_without_a_password_that_can_be_read_is_wrong_usage(
    hawker: Hawker, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(""))
    said = hawker("registry", "login", "reg.example", "-u", "ada", *words)
    assert said.status == ExitStatus.USAGE and why in said.err and "secret" not in said.out + said.err


def test_stdin_with_a_password_needs_a_user_name(hawker: Hawker) -> None:
    assert "--username" in hawker("registry", "login", "reg.example", "--password-stdin").err


def test_logins_are_listed_and_given_up(node: FakeNode, hawker: Hawker) -> None:
    heading, row = hawker("registry", "list", "--org", "acme").out.splitlines()
    assert heading.split() == ["REGISTRY", "USER", "SINCE", "BY", "NODES"]
    assert row.split()[:2] == ["reg.example", "ada"] and row.split()[-1] == "0badcafe"
    assert hawker("registry", "logout", "reg.example").status == 0
    assert node.call("delete_registry_login").params.org_slug == "personal"

import io
from pathlib import Path

import pytest

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def values(node: FakeNode) -> dict[str, str | None]:
    sent: dict[str, str | None] = node.call("update_secrets").body.values
    return sent


def test_secrets_are_set(hawker: Hawker, node: FakeNode) -> None:
    said = hawker("secrets", "set", "-a", "shop", "A=1", "B=x=y")
    assert said.out == "version 7; machines get it with their next update\n"
    assert values(node) == {"A": "1", "B": "x=y"}


def test_a_value_can_come_from_stdin(hawker: Hawker, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines\n"))
    hawker("secrets", "set", "-a", "shop", "KEY=-")
    assert values(node) == {"KEY": "two\nlines\n"}
    assert "only one value" in hawker("secrets", "set", "-a", "shop", "A=-", "B=-").err


def test_a_file_of_variables_is_imported(hawker: Hawker, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('# mine\n\nexport A=1\nB="two words"\nC=\'\n'))
    hawker("secrets", "import", "-a", "shop")
    assert values(node) == {"A": "1", "B": "two words", "C": "'"}


def test_secrets_are_removed(hawker: Hawker, node: FakeNode) -> None:
    hawker("secrets", "unset", "-a", "shop", "KEY")
    assert values(node) == {"KEY": None}


def test_none_is_removed_where_one_is_not_set(hawker: Hawker, node: FakeNode) -> None:
    said = hawker("secrets", "unset", "-a", "shop", "KEY", "KYE")
    assert said.status == ExitStatus.NOT_FOUND and "app shop has no secret KYE" in said.err
    assert "update_secrets" not in node.calls


def test_secrets_are_listed_and_shown_only_on_request(hawker: Hawker, node: FakeNode) -> None:
    heading, row = hawker("secrets", "list", "-a", "shop").out.splitlines()
    assert heading.split() == ["NAME", "DIGEST", "SET"] and row.split()[:2] == ["KEY", "0a"]
    heading, row = hawker("secrets", "list", "-a", "shop", "--show").out.splitlines()
    assert (heading.split()[-1], row.split()[-1]) == ("VALUE", "hush")


@pytest.mark.parametrize("pair", ["A", "=1"])
def test_a_text_that_is_no_pair_is_refused_without_showing_it(hawker: Hawker, pair: str) -> None:
    said = hawker("secrets", "set", "-a", "shop", pair)
    assert said.status == ExitStatus.USAGE and "is not NAME=VALUE" in said.err


def test_the_app_is_the_one_named_else_that_of_the_file_here_else_the_default_one(
    hawker: Hawker, node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hawker("secrets", "unset", "KEY")
    Path("fly.toml").write_text("app = 'shop'\n")
    hawker("secrets", "unset", "KEY")
    hawker("secrets", "unset", "-a", "other", "KEY")
    assert [call.params.app_name for call in node.calls["update_secrets"]] == ["default", "shop", "other"]

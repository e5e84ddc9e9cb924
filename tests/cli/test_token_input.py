from pathlib import Path

import click
import pytest

from hawker.cli.exits import ExitStatus
from hawker.cli.token_input import read_token, refuse_root
from tests.cli.conftest import Hawker
from tests.cli.fake_node import TOKEN

ROOT = "hwk_" + "0f" * 32


def test_a_token_is_the_first_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("hwj_x \nmore\n")
    read = read_token(str(file))
    assert read == "hwj_x" and read_token(None) is None


@pytest.mark.parametrize("data", [b"", b"\n", b"\xff\xfe\n", None])
def test_a_file_without_a_token_is_told(tmp_path: Path, data: bytes | None) -> None:
    file = tmp_path / "token"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(click.UsageError, match="token in"):
        read_token(str(file))


def test_a_root_token_in_the_command_line_is_refused_and_not_repeated(hawker: Hawker) -> None:
    for words in (["--token", ROOT, "apps", "list"], ["tokens", "inspect", ROOT], ["tokens", "revoke", ROOT]):
        said = hawker(*words)
        assert said.status == ExitStatus.USAGE and "can read a root token in the command line" in said.err
        assert "--token-file FILE" in said.err and ROOT not in said.err + said.out


def test_a_limited_token_in_the_command_line_is_not_refused() -> None:
    for text in (None, "", "hwk_kwHE", "fm2_x", ROOT + "0"):
        refuse_root(text)


def test_a_command_reads_its_token_from_a_file(
    hawker: Hawker, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert hawker("--token", "wrong", "--token-file", str(file), "apps", "list").status == 0

"""`hawker config`: with files, and with what a node was told."""

import json
import tomllib
from pathlib import Path

import pytest

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_valid_file_is_summed_up(hawker: Hawker, folder: Path, node: FakeNode) -> None:
    (folder / "fly.toml").write_text("app = 'shop'\n[build]\nimage = 'a:1'\n[[vm]]\ncpus = 2\nmemory = '1gb'\n")
    said = hawker("config", "validate")
    assert said.status == ExitStatus.OK and not node.calls
    assert [line.split(maxsplit=1) for line in said.out.splitlines()[:3]] == [
        ["file", "fly.toml is valid"],
        ["app", "shop"],
        ["image", "a:1"],
    ]
    assert said.out.splitlines()[3].endswith("2 shared cpus, 1024 MiB")


def test_all_errors_are_told_with_their_places(hawker: Hawker, folder: Path) -> None:
    (folder / "fly.toml").write_text("ap = 'shop'\n[http_service]\n  internal_port = 'abc'\n")
    said = hawker("config", "validate")
    assert said.status == ExitStatus.USAGE and said.out == ""
    assert said.err.splitlines()[:2] == [
        "fly.toml:1:1: ap: unknown key; did you mean app?",
        'fly.toml:3:3: http_service.internal_port: wanted a number, got "abc"',
    ]
    assert "fly.toml has 2 errors" in said.err
    assert hawker("config", "validate", "--lax").err.count("warning") == 1


def test_machine_configs_are_printed_with_local_files(hawker: Hawker, folder: Path) -> None:
    (folder / "app.yaml").write_text("files:\n- guest_path: /a\n  local_path: b.txt\n")
    (folder / "b.txt").write_text("hi")
    machines = json.loads(hawker("config", "validate", "-c", "app.yaml", "-o", "json").out)
    assert machines["app"]["files"] == [{"guest_path": "/a", "raw_value": "aGk="}]


@pytest.mark.parametrize("path", ["../b", "/etc/passwd", "link"])
def test_a_local_file_elsewhere_is_refused(hawker: Hawker, folder: Path, path: str) -> None:
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "fly.toml").write_text(f"[[files]]\nguest_path = '/a'\nlocal_path = '{path}'\n")
    said = hawker("config", "validate")
    assert said.status == ExitStatus.USAGE and "is not below" in said.err


def test_a_file_that_cannot_be_read_is_refused(hawker: Hawker, folder: Path) -> None:
    (folder / "long.toml").write_text("#" * 300_000)
    (folder / "bytes.toml").write_bytes(b"\xff\xfe")
    for words, said in (
        ((), "no fly.toml here"),
        (("-c", "none.toml"), "no such file"),
        (("-c", "/dev/zero"), "no such file"),
        (("-c", "long.toml"), "longer than 256 KiB"),
        (("-c", "bytes.toml"), "no text in UTF-8"),
    ):
        answer = hawker("config", "validate", *words)
        assert answer.status == ExitStatus.USAGE and said in answer.err


def test_an_app_s_config_is_shown(hawker: Hawker, folder: Path) -> None:
    assert json.loads(hawker("config", "show", "-a", "shop").out)["env"] == {"A": "2"}
    (folder / "fly.toml").write_text("app = 'here'\n[mount]\nsource = 'a'\ndestination = '/a'\n")
    assert json.loads(hawker("config", "show").out) == {
        "app": "here",
        "mounts": {"source": "a", "destination": "/a"},
    }


def test_an_app_s_config_is_saved_and_not_over_a_file(hawker: Hawker, folder: Path) -> None:
    assert hawker("config", "save", "-a", "shop").out == "wrote fly.toml\n"
    assert tomllib.loads((folder / "fly.toml").read_text()) == {
        "app": "shop",
        "env": {"A": "2"},
        "vm": [{"memory": "1gb"}],
    }
    assert hawker("config", "validate").status == ExitStatus.OK
    refused = hawker("config", "save", "-a", "shop")
    assert refused.status == ExitStatus.USAGE and "--yes writes over it" in refused.err
    assert hawker("config", "save", "-a", "shop", "--yes").status == ExitStatus.OK
    assert hawker("config", "save", "-a", "shop", "-c", "a.json").status == ExitStatus.OK
    assert json.loads((folder / "a.json").read_text())["app"] == "shop"
    assert hawker("config", "save", "-a", "shop", "-c", "a.yaml").status == ExitStatus.USAGE


def test_an_app_without_releases_has_no_config(hawker: Hawker, node: FakeNode) -> None:
    node.releases = ()
    assert hawker("config", "show", "-a", "shop").status == ExitStatus.NOT_FOUND

import json
from pathlib import Path

import pytest

from hawker.cli.commands.machine.cp import Inside, inside
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


@pytest.fixture(autouse=True)
def _machine(node: FakeNode) -> None:
    node.add("shop", machine(name="web"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("web:/srv", Inside("web", "/srv")),
        ("web:", Inside("web", "/")),
        ("web:a/b", Inside("web", "a/b")),
        ("./a:b", None),
        ("/a:b", None),
        ("dir/a:b", None),
        ("plain", None),
        (":x", None),
    ],
)
def test_a_path_with_a_machine_before_it_is_inside(text: str, found: Inside | None) -> None:
    assert inside(text) == found


def test_a_tree_goes_in_and_comes_out(node: FakeNode, hawker: Hawker, tmp_path: Path) -> None:
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/file").write_bytes(b"x" * 200_000)
    said = hawker("cp", str(tmp_path / "tree"), "web:/srv")
    assert said.status == ExitStatus.OK and "copied 1 file, 195.3 KiB" in said.err
    sent = node.call("machine_copy").body
    assert (sent.path, sent.name, sent.direction, sent.owners) == ("/srv", "tree", "in", False)
    assert hawker("cp", "-q", "web:/srv/tree", str(tmp_path / "back")).err == ""
    assert (tmp_path / "back/sub/file").read_bytes() == b"x" * 200_000
    told = json.loads(hawker("cp", "-q", "-o", "json", str(tmp_path / "tree"), "web:/srv").out)
    assert told == {"files": 1, "bytes": 200_000, "passed_over": []}


@pytest.mark.parametrize("suffix", ["/.", "/./."])
def test_contents_of_a_directory_go_into_another_one_where_a_dot_ends_it(
    node: FakeNode, hawker: Hawker, tmp_path: Path, suffix: str
) -> None:
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/file").write_text("x")
    (tmp_path / "link").symlink_to("tree")
    (tmp_path / "back").mkdir()
    for each in ("tree", "link"):
        assert "copied 1 file" in hawker("cp", f"{tmp_path}/{each}{suffix}", "web:/srv").err
        assert node.calls["machine_copy"][-1].body.name == ""
    hawker("cp", f"web:/srv/tree{suffix}", str(tmp_path / "back"))
    assert (tmp_path / "back/sub/file").read_text() == "x" and not (tmp_path / "back/tree").exists()
    said = hawker("cp", f"{tmp_path}/tree/sub/file/.", "web:/srv")
    assert said.status == ExitStatus.FAILED


def test_working_directory_by_its_dot_is_its_contents(
    node: FakeNode, hawker: Hawker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path)
    hawker("cp", ".", "web:/srv")
    assert node.calls["machine_copy"][-1].body.name == ""
    hawker("cp", "../" + tmp_path.name, "web:/srv")
    assert node.calls["machine_copy"][-1].body.name == tmp_path.name


def test_an_error_in_the_machine_is_said_without_its_control_characters(
    node: FakeNode, hawker: Hawker, tmp_path: Path
) -> None:
    node.copy_error = "/no: no such file\x1b[2J"
    said = hawker("cp", "web:/no", str(tmp_path))
    assert (said.status, said.err) == (1, "error: in the machine: /no: no such file�[2J\n")


def test_a_copy_that_was_cut_short_is_an_error(node: FakeNode, hawker: Hawker, tmp_path: Path) -> None:
    node.copied = b"HKCP\x01\x00"
    said = hawker("cp", "web:/srv", str(tmp_path / "there"))
    assert said.status == 1 and "cut short" in said.err


@pytest.mark.parametrize("words", [("web:/a", "web:/b"), ("a", "b")])
def test_one_side_is_a_machine(hawker: Hawker, words: tuple[str, str]) -> None:
    assert hawker("cp", *words).status == ExitStatus.USAGE


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("web:/etc/passwd", "-"), "`hawker exec web cat /etc/passwd` prints a file"),
        (("-", "web:/etc/motd"), "`hawker exec web tee /etc/motd` writes"),
    ],
)
def test_dash_is_refused_with_what_to_type_instead(hawker: Hawker, words: tuple[str, str], instead: str) -> None:
    said = hawker("cp", *words)
    assert said.status == ExitStatus.USAGE and instead in said.err and "./-" in said.err

"""`hawker launch` writes a file that `hawker config validate` takes."""

import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_a_file_is_written_for_an_image(hawker: Hawker, node: FakeNode, tmp_path: Path) -> None:
    path = str(tmp_path / "fly.toml")
    words = ("--name", "shop", "--image", "registry.local/shop:1", "--region", "ams", "--port", "8080")
    said = hawker("launch", *words, "--vm-memory", "1gb", "-c", path)
    assert said.out == f"wrote {path}\n" and not node.calls
    assert tomllib.loads(Path(path).read_text()) == {
        "app": "shop",
        "primary_region": "ams",
        "build": {"image": "registry.local/shop:1"},
        "http_service": {"internal_port": 8080, "force_https": True},
        "vm": [{"memory": "1gb"}],
    }
    assert hawker("config", "validate", "-c", path).status == ExitStatus.OK
    assert hawker("launch", *words, "-c", path).status == ExitStatus.USAGE


def test_an_answer_that_would_be_wrong_in_the_file_is_refused(hawker: Hawker, tmp_path: Path) -> None:
    path = tmp_path / "fly.toml"
    said = hawker("launch", "--name", "Not A Name", "--image", "a", "--vm-memory", "much", "-c", str(path))
    assert said.status == ExitStatus.USAGE and "app:" in said.err and "memory" in said.err
    assert not path.exists()
    assert hawker("launch", "--name", "a", "--image", "b", "-c", "a.yaml").status == ExitStatus.USAGE


def test_the_page_s_commands_are_typed(
    hawker: Hawker, node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "fly-toml.md").read_text()
    monkeypatch.chdir(tmp_path)
    typed = [line.split()[1:] for line in page.splitlines() if line.startswith("hawker ")]
    assert len(typed) == 7
    for words in typed:
        said = hawker(*words)
        assert said.status == ExitStatus.OK and said.out, words
    assert (tmp_path / "fly.toml").exists() and (tmp_path / "shop.toml").exists()


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("FROM a\nexpose 8080/tcp\nEXPOSE 9090\n", 8080),
        ("FROM a\nEXPOSE 53/udp\n", None),
        ("FROM a\n# EXPOSE 1\nEXPOSE 99999\n", None),
        ("EXPOSE $PORT\n", None),
    ],
)
def test_the_port_is_the_first_that_a_dockerfile_exposes(
    hawker: Hawker, tmp_path: Path, text: str, port: int | None
) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    path = tmp_path / "fly.toml"
    said = hawker("launch", "--name", "shop", "--image", "registry.local/shop:1", "-c", str(path))
    service = tomllib.loads(path.read_text()).get("http_service")
    assert service == (None if port is None else {"internal_port": port, "force_https": True})
    assert (port is not None) == ("Dockerfile" in said.err)


def at_a_terminal(folder: Path, *words: str, answers: str) -> str:
    """What the command says there to who types `answers`."""
    ours, theirs = pty.openpty()
    try:
        call = "import sys; from hawker.cli.main import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", call, "launch", *words]
        client = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        os.write(ours, answers.encode())
        said = b"".join(iter(lambda: _read(ours), b""))
        assert client.wait(60) == 0, said
    finally:
        os.close(ours)
    return said.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


def test_a_terminal_is_asked_for_what_is_not_given(tmp_path: Path) -> None:
    folder = tmp_path / "My Shop_2"
    folder.mkdir()
    (folder / "Dockerfile").write_text('FROM a\nEXPOSE 9090\nCMD ["serve", "--all"]\n')
    said = at_a_terminal(folder, answers="\nregistry.local/shop:1\nams\n70000\n\n")
    assert "App name [my-shop-2]" in said and 'starts ["serve", "--all"]' in said and "'70000' is no port" in said
    assert tomllib.loads((folder / "fly.toml").read_text()) == {
        "app": "my-shop-2",
        "primary_region": "ams",
        "build": {"image": "registry.local/shop:1"},
        "http_service": {"internal_port": 9090, "force_https": True},
    }


def test_nothing_is_asked_for_that_is_given_or_with_yes(
    hawker: Hawker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = at_a_terminal(tmp_path, "--name", "a", "--image", "b", "--yes", answers="")
    assert "wrote fly.toml" in said and "Region" not in said
    monkeypatch.chdir(tmp_path)
    for words in ((), ("--name", "a"), ("--image", "b", "--yes")):
        refused = hawker("launch", *words)
        assert refused.status == ExitStatus.USAGE and "is missing: give it" in refused.err

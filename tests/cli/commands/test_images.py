from io import BufferedReader, BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import msgspec
import pytest

from hawker.api.contract.image import PullEvent
from hawker.cli.exits import ExitStatus
from hawker.errors import NotFound
from tests.cli.conftest import Hawker
from tests.cli.fake_node import DIGEST, FakeNode, image


def test_images_are_listed(node: FakeNode, hawker: Hawker) -> None:
    node.images = (image("web:3"),)
    row = hawker("images", "list").out.splitlines()[1].split()
    assert row[:6] == ["web:3", DIGEST[:19], "5.0", "MiB", "2", "1"]
    assert msgspec.json.decode(hawker("images", "list", "-o", "json").out)["images"][0]["digest"] == DIGEST


def test_a_pull_prints_the_digest_and_shows_its_progress_elsewhere(node: FakeNode, hawker: Hawker) -> None:
    loading = PullEvent(stage="downloading", layer=DIGEST, done_bytes=1, total_bytes=2)
    node.pull = (loading, PullEvent(stage="done", digest=DIGEST))
    said = hawker("images", "pull", "web:3")
    assert (said.out, said.err) == (f"{DIGEST}\n", "pulling web:3\npulled web:3\n")


def test_a_password_is_read_from_stdin(node: FakeNode, hawker: Hawker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("pass word\n"))
    hawker("images", "pull", "web:3", "--username", "ada", "--password-stdin")
    body = node.call("pull_image").body
    assert (body.username, body.password) == ("ada", "pass word")


def test_an_unknown_image_is_not_found(node: FakeNode, hawker: Hawker) -> None:
    node.failures["pull_image"] = NotFound("image web:9 not found")
    assert hawker("images", "pull", "web:9").status == ExitStatus.NOT_FOUND


def test_an_archive_is_uploaded_whole(node: FakeNode, hawker: Hawker, tmp_path: Path) -> None:
    data = bytes(range(256)) * 3000
    (tmp_path / "web.tar").write_bytes(data)
    said = hawker("images", "import", str(tmp_path / "web.tar"), "--as", "web:4", "--format", "oci-archive")
    assert said.out == f"{DIGEST}\n"
    assert node.uploaded == data
    query = node.call("import_image").query
    assert (query.reference, query.format) == ("web:4", "oci-archive")


def test_an_archive_that_is_not_there_is_wrong_usage(hawker: Hawker) -> None:
    assert hawker("images", "import", "nowhere.tar").status == ExitStatus.USAGE


def test_pruning_says_what_went_and_what_it_freed(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("images", "prune", "--unused-for", "24h").out == f"{DIGEST}\nfreed 3.0 MiB\n"
    assert node.call("prune_images").body.unused_for_s == 86_400.0


def test_images_are_pruned_with_the_names_that_they_had(node: FakeNode, hawker: Hawker) -> None:
    node.images = (image("web:3"),)
    assert hawker("images", "prune").out.splitlines()[0] == f"{DIGEST}  web:3"


@pytest.mark.parametrize("word", ["web:3", "docker.io/library/web:3", DIGEST, DIGEST[7:15]])
def test_one_image_is_removed_by_its_name_or_digest(node: FakeNode, hawker: Hawker, word: str) -> None:
    node.images = (image("docker.io/library/web:3", machines=0),)
    said = hawker("images", "remove", word)
    assert (said.status, said.out.splitlines()[0]) == (ExitStatus.OK, f"{DIGEST}  web:3")
    body = node.call("prune_images").body
    assert (body.digests, body.unused_for_s) == ((DIGEST,), None)


@pytest.mark.parametrize(
    ("word", "machines", "status", "why"),
    [
        ("web:3", 2, ExitStatus.FAILED, "used by 2 machines"),
        ("web:4", 0, ExitStatus.NOT_FOUND, "not on this node"),
        ("sha256:", 0, ExitStatus.NOT_FOUND, "not on this node"),
        ("", 0, ExitStatus.NOT_FOUND, "not on this node"),
    ],
)
def test_an_image_in_use_and_one_that_is_not_there_are_not_removed(
    node: FakeNode, hawker: Hawker, word: str, machines: int, status: ExitStatus, why: str
) -> None:
    node.images = (image("web:3", machines=machines),)
    said = hawker("images", "remove", word)
    assert said.status == status and why in said.err
    assert "prune_images" not in node.calls


def test_an_archive_is_read_from_stdin(node: FakeNode, hawker: Hawker, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 3000
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BufferedReader(BytesIO(data))))
    assert hawker("images", "import", "-", "--as", "web:4").out == f"{DIGEST}\n"
    assert node.uploaded == data and node.call("import_image").query.reference == "web:4"


def test_an_empty_input_is_said_before_anything_is_sent(
    node: FakeNode, hawker: Hawker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BufferedReader(BytesIO())))
    said = hawker("images", "import", "-")
    assert said.status == ExitStatus.FAILED and "standard input is empty" in said.err
    assert "import_image" not in node.calls


def test_an_image_is_pushed_as_another_name(node: FakeNode, hawker: Hawker) -> None:
    loading = PullEvent(stage="uploading", layer=DIGEST, done_bytes=1, total_bytes=2)
    node.pull = (loading, PullEvent(stage="done", digest=DIGEST))
    said = hawker("images", "push", "web:3", "reg.example/web:3", "--org", "acme")
    assert (said.out, said.err) == (f"{DIGEST}\n", "pushing reg.example/web:3\npushed reg.example/web:3\n")
    body = node.call("push_image").body
    assert (body.reference, body.to, body.org) == ("web:3", "reg.example/web:3", "acme")

"""The command line of it; what importing does is tested in tests/runtime/kernel."""

import os
from pathlib import Path

import msgspec
import pytest

from hawker.cli.commands import kernel
from hawker.cli.main import main
from hawker.errors import CannotStart
from hawker.runtime.kernel.kernel_import import KernelSource
from tests.runtime.kernel.crafted import RELEASE, bzimage, vmlinux, whole_tree


@pytest.fixture(autouse=True)
def _umask() -> object:
    """The command sets it for its process, which here is the tests'."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "bzImage").write_bytes(bzimage(payload=vmlinux()))
    return tmp_path / "bzImage"


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    return whole_tree(tmp_path / "modules")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAWKER_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def run(*words: object) -> int:
    return main(["kernel", *map(str, words)])


def test_a_kernel_from_files(data: Path, image: Path, modules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("import", "--image", image, "--modules", modules) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"imported kernel {RELEASE}, ") and said.err == f"reading {image}\n"
    assert run("list") == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["RELEASE", "USED", "IMPORTED", "SIZE", "ORIGIN"]
    assert row.split()[:2] == [RELEASE, "yes"] and row.endswith(f"file {image}")


def test_others_may_read_the_kernel_and_not_the_directory(data: Path, image: Path, modules: Path) -> None:
    """A VMM is shown the files by root; nobody else comes in."""
    assert run("import", "--image", image, "--modules", modules) == 0
    assert [path.stat().st_mode & 0o777 for path in (data, data / "kernels")] == [0o700, 0o700]
    assert {path.stat().st_mode & 0o777 for path in data.rglob("*") if path.is_file()} == {0o644}


def test_the_list_as_json_has_everything(
    data: Path, image: Path, modules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (modules / "kernel/char/virtio-rng.ko").unlink()
    assert run("import", "--image", image, "--modules", modules) == 0
    assert "it has no virtio_rng: not every" in capsys.readouterr().err
    assert run("list", "-o", "json") == 0
    [found] = msgspec.json.decode(capsys.readouterr().out, type=list[kernel.KernelInfo])
    assert (found.release, found.used, found.lacks, found.pvh) == (RELEASE, True, ("virtio_rng",), True)
    assert found.modules[0] == "virtio" and found.size_bytes > len(bzimage(payload=vmlinux()))


def test_one_is_chosen_and_another_removed(
    data: Path, image: Path, modules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", "--image", image, "--modules", modules) == 0
    (tmp_path / "vmlinux").write_bytes(vmlinux("9.9.9"))
    assert run("import", "--image", tmp_path / "vmlinux", "--modules", whole_tree(tmp_path / "new", "9.9.9")) == 0
    assert used(capsys) == "9.9.9"
    assert run("use", RELEASE) == 0 and used(capsys) == RELEASE
    assert run("use", "newest") == 0 and used(capsys) == "9.9.9"
    assert run("remove", "9.9.9") == 0 and used(capsys) == RELEASE


def used(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run("list", "-o", "json") == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=list[kernel.KernelInfo])
    [release] = [each.release for each in found if each.used]
    return release


@pytest.mark.parametrize("word", ["use", "remove"])
def test_one_that_is_not_there(data: Path, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(word, "6.6.6") == 3
    assert capsys.readouterr().err == (
        "error: there is no kernel 6.6.6 here, and no other: `hawker kernel import` imports one\n"
    )


def test_an_empty_list(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 and not data.exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--package", "x", "--image", __file__, "--modules", "."), "--package and --image exclude each other"),
        (("--image", __file__), "--image and --modules need each other"),
        (("--modules", "."), "--image and --modules need each other"),
        (("--image", "/nowhere"), "does not exist"),
    ],
)
def test_options_that_do_not_go_together(
    data: Path, options: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", *options) == 2
    assert complaint in capsys.readouterr().err and not data.exists()


def test_a_file_that_cannot_be_imported_is_one_line(
    data: Path, modules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", "--image", __file__, "--modules", modules) == 2
    assert f"error: cannot import {__file__}: not a kernel" in capsys.readouterr().err


def test_a_data_directory_that_cannot_be(
    tmp_path: Path, image: Path, modules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run("import", "--image", image, "--modules", modules, "--data-dir", tmp_path / "file/data") == 2
    assert "Not a directory" in capsys.readouterr().err


def test_without_options_the_hosts_own_kernel_is_taken_where_it_will_do(
    data: Path, image: Path, modules: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel, "host_source", lambda: KernelSource(image, modules, "this host's kernel"))
    assert run("import") == 0 and run("list") == 0
    assert "this host's kernel" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "package"), [((), "linux-image-usual"), (("--package", "linux-image-x"), "linux-image-x")]
)
def test_else_a_package_is(
    options: tuple[str, ...],
    package: str,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(store: object, directory: Path, package: str, *_: object) -> None:
        raise CannotStart(f"asked for {package} below {directory}")

    monkeypatch.setattr(kernel, "host_source", lambda: None)
    monkeypatch.setattr(kernel, "usual_package", lambda: "linux-image-usual")
    monkeypatch.setattr(kernel, "import_package", refuse)
    assert run("import", *options) == 2
    assert capsys.readouterr().err == f"error: asked for {package} below {data}/kernels\n"

"""With programs in the place of apt's, which say what apt says; that the real ones do is seen by `tests/kernel.py`."""

import subprocess
from pathlib import Path

import pytest

from hawker.errors import CannotStart
from hawker.runtime.kernel.apt import download, usual_package

_DEPENDS = """#!/bin/sh
case $3 in
linux-image-cloud-amd64) printf '%s\\n  Depends: linux-image-6.1.0-9\\n' $3 ;;
linux-image-6.1.0-9) printf '  PreDepends: linux-modules-6.1.0-9\\n  Depends: linux-base\\n |Depends: kmod\\n' ;;
linux-image-all) for i in 1 2 3 4 5 6 7; do echo "  Depends: linux-image-$i"; done ;;
linux-modules-6.1.0-9 | linux-image-[0-9] | plain) echo $3 ;;
*) echo "E: No packages found" >&2; exit 100 ;;
esac
"""
_GET = """#!/bin/sh
[ "$1" = download ] || exit 1
shift
for name; do echo package >"${name}_1_all.deb"; done
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:/bin:/usr/bin")
    script(directory / "apt-cache", _DEPENDS)
    script(directory / "apt-get", _GET)
    return directory


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    (tmp_path / "into").mkdir()
    return tmp_path / "into"


def test_a_name_that_stands_for_the_newest_is_followed_to_the_kernel_and_its_parts(tools: Path, into: Path) -> None:
    said: list[str] = []
    files = download("linux-image-cloud-amd64", into, said.append)
    names = ["linux-image-6.1.0-9", "linux-image-cloud-amd64", "linux-modules-6.1.0-9"]
    assert files == [into / f"{name}_1_all.deb" for name in names]
    assert said == ["downloading linux-image-cloud-amd64, linux-image-6.1.0-9, linux-modules-6.1.0-9"]


def test_a_package_that_needs_no_other(tools: Path, into: Path) -> None:
    assert download("plain", into, lambda line: None) == [into / "plain_1_all.deb"]


def test_a_package_that_apt_does_not_know(tools: Path, into: Path) -> None:
    with pytest.raises(CannotStart, match="apt knows no package linux-none: try `apt-get update`"):
        download("linux-none", into, lambda line: None)


@pytest.mark.parametrize("name", ["", "-o", "../x", "a b", "A", "x=1"])
def test_what_is_no_name_of_a_package_never_reaches_apt(tools: Path, into: Path, name: str) -> None:
    script(tools / "apt-cache", "#!/bin/sh\ntouch reached\n")
    with pytest.raises(CannotStart, match="is no name of a package"):
        download(name, into, lambda line: None)


def test_a_name_for_many_kernels_is_refused_with_their_names(tools: Path, into: Path) -> None:
    with pytest.raises(CannotStart, match="stands for too many kernels: name one of linux-image-1, linux-image-2"):
        download("linux-image-all", into, lambda line: None)


def test_without_network_it_says_what_apt_said(tools: Path, into: Path) -> None:
    script(tools / "apt-get", "#!/bin/sh\necho 'W: warned' >&2\necho 'E: Could not connect' >&2\nexit 100\n")
    with pytest.raises(CannotStart, match=r"cannot download plain: E: Could not connect; try `apt-get update`"):
        download("plain", into, lambda line: None)
    script(tools / "apt-get", "#!/bin/sh\nexit 0\n")
    with pytest.raises(CannotStart, match="cannot download plain: exit status 0"):
        download("plain", into, lambda line: None)


def test_apt_that_does_not_answer_is_not_waited_for(tools: Path, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr("subprocess.run", hang)
    with pytest.raises(CannotStart, match=r"apt-cache has not answered in 60 s: is the network there\?"):
        download("plain", into, lambda line: None)


def test_without_apt_it_says_what_else_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotStart, match=r"apt-get is missing.* --image and --modules"):
        download("plain", tmp_path, lambda line: None)


def test_the_usual_package_is_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert usual_package() == "linux-image-cloud-arm64"
    monkeypatch.setattr("platform.machine", lambda: "m68k")
    with pytest.raises(CannotStart, match="for m68k: name one with --package"):
        usual_package()

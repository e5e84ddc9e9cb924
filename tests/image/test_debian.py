"""Facts about a real Debian, pulled from a real registry: every file is what its archive says."""

import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from tests.fixtures.debian_image import PAGE, debian_tar, find_mirror
from tests.fixtures.registry import Registry
from tests.image.images import opened_cache

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # of which a busy host takes minutes for debootstrap, once in a checkout
    pytest.mark.long(
        reason="debootstrap makes a Debian from a mirror, which takes a checkout a minute and asks a host that others "
        "run; tests/image/test_unpack.py has each kind of file"
    ),
]

_WHITED_OUT = "./var/log/bootstrap.log"
_EMPTIED = "./usr/share/doc/"


@contextmanager
def mounted(block: Path, at: Path) -> Iterator[Path]:
    at.mkdir()
    subprocess.run(["mount", "-o", "ro,loop", block, at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


@pytest.mark.parametrize(
    "sources",
    [
        "deb http://sec.example/s bookworm-security main\ndeb [a=b] http://one.example/d bookworm main contrib\n",
        "Types: deb\nURIs: http://sec.example/s\nSuites: bookworm-security\n\n"
        "Types: deb\nURIs: http://one.example/d\nSuites: bookworm bookworm-updates\nComponents: main\n",
        "Types: deb\nURIs: http://one.example/d\nSuites: bookworm-updates bookworm\n",
    ],
)
def test_mirror_is_found_in_both_forms_of_apts_sources(sources: str) -> None:
    assert find_mirror(sources, "bookworm") == "http://one.example/d"
    assert find_mirror(sources, "sid") is None


async def test_every_file_is_as_in_the_archive(
    debian_image: Callable[[Registry], str], registry: Registry, tmp_path: Path
) -> None:
    async with opened_cache(tmp_path) as cache:
        image = await cache.pull(debian_image(registry))
        assert image.config.cmd == ("nginx", "-g", "daemon off;")
        assert len(image.layers) == 2
        with mounted(cache.block_path(image.digest), tmp_path / "mnt") as root:
            compared = [_compare(archive, info, root) for archive, info in _members()]
            assert sum(compared) > 5000
            assert not (root / _WHITED_OUT).exists()
            assert list((root / _EMPTIED).iterdir()) == []
            assert (root / "var/www/html/index.html").read_bytes() == PAGE
            version = await anyio.run_process(["chroot", str(root), "python3", "-V"])
            assert version.stdout.startswith(b"Python 3")


def _members() -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    with tarfile.open(debian_tar()) as archive:
        for info in archive:
            if info.name != _WHITED_OUT and not info.name.startswith(_EMPTIED):
                yield archive, info


def _compare(archive: tarfile.TarFile, info: tarfile.TarInfo, root: Path) -> bool:
    """Whether there was something to compare; the top layer's own directories have other times."""
    if info.ischr() or info.isblk():
        return False
    path = root / info.name
    found = path.lstat()
    assert (found.st_uid, found.st_gid) == (info.uid, info.gid), info.name
    if info.issym():
        assert str(path.readlink()) == info.linkname, info.name
    else:
        assert found.st_mode & 0o7777 == info.mode, info.name
    if info.isreg():
        content = archive.extractfile(info)
        assert content is not None
        assert path.read_bytes() == content.read(), info.name
        assert int(found.st_mtime) == int(info.mtime), info.name
    if info.islnk():
        assert path.samefile(root / info.linkname), info.name
    return True

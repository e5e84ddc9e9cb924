"""Facts about the sample image."""

from gzip import decompress as gunzip
from pathlib import Path

import pytest

from hawker.image.config import read_config
from hawker.image.hello import hello_source
from hawker.image.limits import ImageLimits
from hawker.image.manifest import Manifest, read_manifest
from hawker.image.source import LocalSource
from tests.image.layers import unpack

pytestmark = pytest.mark.anyio


@pytest.fixture
def source(tmp_path: Path) -> LocalSource:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    return hello_source(program, 1 << 20)


async def blob(source: LocalSource, number: int) -> bytes:
    found = read_manifest((await source.manifest(None)).content, ImageLimits())
    assert isinstance(found, Manifest)
    async with source.blob((found.config, *found.layers)[number], 0) as piece:
        return b"".join([chunk async for chunk in piece.chunks])


async def test_hello_image_runs_as_root_and_serves_8080(source: LocalSource) -> None:
    run = read_config(await blob(source, 0)).run
    assert (run.entrypoint, run.cmd, run.user, run.working_dir) == (("/bin/hello",), (), "root", "/")
    assert run.exposed_ports == ("8080/tcp",)


@pytest.mark.root
async def test_its_files_are_what_a_program_expects(source: LocalSource, tmp_path: Path) -> None:
    root = unpack(tmp_path, [gunzip(await blob(source, 1))])
    assert (root / "bin/hello").read_bytes() == b"\x7fELF"
    assert (root / "bin/hello").stat().st_mode & 0o777 == 0o755
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert "root:x:0:0" in (root / "etc/passwd").read_text()
    assert all((root / name).is_dir() for name in ("dev", "proc", "sys", "root"))


async def test_hello_image_is_the_same_every_time(source: LocalSource, tmp_path: Path) -> None:
    again = hello_source(tmp_path / "program", 1 << 20)
    assert (await source.manifest(None)).content == (await again.manifest(None)).content

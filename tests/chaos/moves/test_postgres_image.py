"""The image with this host's PostgreSQL."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from hawker.chaos.moves.postgres_image import programs, write_postgres_image
from hawker.errors import CannotStart


@pytest.fixture(scope="module")
def server() -> Path:
    try:
        return programs()
    except CannotStart as error:
        pytest.skip(str(error))


@pytest.mark.long(reason="makes an image of PostgreSQL for the trial of moves with a database, which is long too")
def test_the_image_has_the_server_its_libraries_and_a_shell(server: Path, tmp_path: Path) -> None:
    command = write_postgres_image(tmp_path / "image.tar")
    assert f"bin={server}\n" in command and "exec $as $bin/postgres" in command
    with tarfile.open(tmp_path / "image.tar") as archive:
        largest = max((each for each in archive.getmembers() if each.isfile()), key=lambda each: each.size)
        layer = archive.extractfile(largest)
        assert layer is not None
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer.read()))) as files:
            names = set(files.getnames())
    wanted = [server / "postgres", server / "initdb", server.parent / "lib" / "amcheck.so"]
    assert {str(each).lstrip("/") for each in wanted} <= names
    assert {"bin/sh", "bin/setpriv", "etc/passwd"} <= names
    assert any(name.endswith("libc.so.6") for name in names)

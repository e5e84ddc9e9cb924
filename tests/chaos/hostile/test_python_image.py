"""The image that attacks run in."""

import gzip
import io
import json
import tarfile
from pathlib import Path

from hawker.chaos.hostile.python_image import PAYLOADS, PYTHON, write_python_image


def test_the_archive_holds_an_image_with_python_and_the_payloads(tmp_path: Path) -> None:
    write_python_image(tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as archive:

        def blob(digest: str) -> bytes:
            file = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert file is not None
            return file.read()

        index = archive.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.loads(index.read())["manifests"][0]["digest"]))
        layer = gzip.decompress(blob(manifest["layers"][0]["digest"]))
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        assert {PYTHON.lstrip("/"), PAYLOADS.lstrip("/")} <= set(files.getnames())
        assert {member.uid for member in files.getmembers()} == {0}

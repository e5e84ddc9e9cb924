"""The sample image that ships with the package: made here from one static program, the same bytes every time."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hawker.ids import Digest
from hawker.image.manifest import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, host_platform
from hawker.image.reference import digest_of
from hawker.image.source import LocalSource

_FILES: Mapping[str, bytes] = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/hello\nnobody:x:65534:65534:nobody:/:/bin/hello\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}
_DIRECTORIES: Mapping[str, int] = {
    "bin": 0o755,
    "dev": 0o755,
    "etc": 0o755,
    "proc": 0o755,
    "root": 0o700,
    "sys": 0o755,
    "tmp": 0o1777,
}


def hello_source(program: Path, max_manifest_bytes: int) -> LocalSource:
    """`program` is the static web server, for this platform."""
    layer = _layer(program.read_bytes())
    config = msgspec.json.encode(_config(digest_of(layer)))
    packed = gzip.compress(layer, compresslevel=6, mtime=0)
    manifest = msgspec.json.encode(_manifest(config, packed))
    contents = {digest_of(content): content for content in (manifest, config, packed)}
    return LocalSource(digest_of(manifest), contents.get, max_manifest_bytes)


def _layer(program: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, mode in _DIRECTORIES.items():
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, mode
            archive.addfile(directory)
        for name, content in {**_FILES, "bin/hello": program}.items():
            file = tarfile.TarInfo(name)
            file.size, file.mode = len(content), 0o755 if name.startswith("bin/") else 0o644
            archive.addfile(file, io.BytesIO(content))
    return buffer.getvalue()


def _config(diff_id: Digest) -> dict[str, object]:
    platform = host_platform()
    return {
        "architecture": platform.architecture,
        "os": platform.os,
        "config": {
            "Entrypoint": ["/bin/hello"],
            "WorkingDir": "/",
            "User": "root",
            "ExposedPorts": {"8080/tcp": {}},
            "Env": ["PATH=/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    }


def _manifest(config: bytes, layer: bytes) -> dict[str, object]:
    def pointer(media_type: str, content: bytes) -> dict[str, object]:
        return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}

    return {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": pointer(OCI_CONFIG, config),
        "layers": [pointer(f"{OCI_LAYER}+gzip", layer)],
    }

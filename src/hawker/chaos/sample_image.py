"""The image that scenarios need beside the sample image: the same program, and no command. It is an OCI layout on this
host.
"""

import gzip
import io
import tarfile
from pathlib import Path

import msgspec

from hawker.guest import hello_path
from hawker.image.digest import digest_of, hex_of
from hawker.image.manifest import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST
from hawker.image.platform import host_platform

PROGRAM = "/bin/hello"


def write_commandless_image(directory: Path) -> str:
    """Gives the reference."""
    layer, platform = _layer(), host_platform()
    rootfs = {"type": "layers", "diff_ids": [digest_of(layer)]}
    config = _json({"architecture": platform.architecture, "os": platform.os, "config": {}, "rootfs": rootfs})
    packed = gzip.compress(layer, mtime=0)
    pointers = [_pointer(OCI_CONFIG, config), _pointer(f"{OCI_LAYER}+gzip", packed)]
    manifest = _json({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": pointers[0], "layers": pointers[1:]})
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for content in (config, packed, manifest):
        (blobs / hex_of(digest_of(content))).write_bytes(content)
    (directory / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [_pointer(OCI_MANIFEST, manifest)]}))
    (directory / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    return f"oci:{directory}"


def _layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        program = hello_path().read_bytes()
        file = tarfile.TarInfo(PROGRAM.removeprefix("/"))
        file.size, file.mode = len(program), 0o755
        archive.addfile(file, io.BytesIO(program))
    return buffer.getvalue()


def _pointer(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)

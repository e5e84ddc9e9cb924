"""Images as directories on disk (`oci:DIR`), for machines that need another one than `hawker/hello`."""

from pathlib import Path

import msgspec

from hawker.image.manifest import host_platform
from tests.fixtures.parts import OCI_MANIFEST, ImageParts, layer, pointer, tar


def image_in(directory: Path, *argv: str, content: bytes = b"content") -> str:
    """An image of one file that runs `argv`. Gives the reference."""
    parts = ImageParts(
        [layer(tar(("file", content)))], run={"Cmd": argv or ["serve"]}, architecture=host_platform().architecture
    )
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for digest, blob in {parts.digest: parts.manifest, **parts.blobs}.items():
        (blobs / digest.removeprefix("sha256:")).write_bytes(blob)
    manifest = pointer(OCI_MANIFEST, parts.manifest)
    (directory / "index.json").write_bytes(msgspec.json.encode({"schemaVersion": 2, "manifests": [manifest]}))
    (directory / "oci-layout").write_bytes(b'{"imageLayoutVersion":"1.0.0"}')
    return f"oci:{directory}"


def spoil(reference: str) -> None:
    """From now on the image's layers and config are missing; its manifest is still there."""
    directory = Path(reference.removeprefix("oci:"))
    manifest = msgspec.json.decode((directory / "index.json").read_bytes())["manifests"][0]["digest"]
    for blob in (directory / "blobs" / "sha256").iterdir():
        if blob.name != manifest.removeprefix("sha256:"):
            blob.unlink()

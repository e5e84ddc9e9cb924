"""Images for machines of the end-to-end tests: one with a shell and coreutils, as an OCI layout in a directory."""

import io
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from hawker.image.manifest import host_platform
from tests.fixtures.parts import ImageParts, layer, pointer, tar
from tests.rootfs import host_programs

RUN: Mapping[str, object] = {"Cmd": ["sleep", "3600"], "Env": ["PATH=/bin", "GREETING=hello"], "WorkingDir": "/tmp"}
_MORE_PROGRAMS = ("bash", "timeout", "dd", "mkfifo", "rm")  # a shell that opens connections; pipes
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def toolbox(place: Path, run: Mapping[str, object] = RUN) -> ImageParts:
    """The host's own programs, about 9 MB of them. `place` is where they are gathered."""
    buffer = io.BytesIO()
    root = host_programs(place)
    for name in _MORE_PROGRAMS:
        _copy(root, Path(shutil.which(name) or name))
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(root, ".")
    return ImageParts(layers=[layer(buffer.getvalue())], run=run, architecture=host_platform().architecture)


def _copy(root: Path, program: Path) -> None:
    """With the libraries that it is linked against."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, timeout=60).stdout
    libraries = [Path(word) for word in listing.split() if word.startswith("/")]
    for source, target in [
        (program, root / "bin" / program.name),
        *((file, root / str(file)[1:]) for file in libraries),
    ]:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def variant(image: ImageParts, name: str) -> ImageParts:
    """The same with one small layer more, so that it is another image."""
    return replace(image, layers=[*image.layers, layer(tar((f"etc/{name}", b"")))])


def write_layout(directory: Path, image: ImageParts) -> str:
    """Gives the reference."""
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    for digest, content in {**image.blobs, image.digest: image.manifest}.items():
        (blobs / digest.removeprefix("sha256:")).write_bytes(content)
    manifests = [pointer(_MANIFEST, image.manifest)]
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
    (directory / "index.json").write_bytes(msgspec.json.encode(index))
    (directory / "oci-layout").write_bytes(b'{"imageLayoutVersion":"1.0.0"}')
    return f"oci:{directory}"


def write_oci_archive(file: Path, image: ImageParts) -> None:
    layout = file.with_suffix(".layout")
    write_layout(layout, image)
    with tarfile.open(file, "w") as archive:
        archive.add(layout, ".")


def write_docker_archive(file: Path, image: ImageParts, name: str) -> None:
    """As `docker save` does, with layers that are not packed."""
    layers = {f"layer{index}.tar": part.archive for index, part in enumerate(image.layers)}
    listed = [{"Config": "config.json", "RepoTags": [name], "Layers": list(layers)}]
    contents = {"manifest.json": msgspec.json.encode(listed), "config.json": image.config, **layers}
    file.write_bytes(tar(*contents.items()))

"""An image with this host's Python and its standard library, so that an attack from inside a machine can be any
program. It is an OCI archive, made from files of this host; nothing is downloaded.
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from hawker.chaos.hostile import payloads
from hawker.errors import CannotStart
from hawker.image.manifest import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, host_platform
from hawker.image.reference import digest_of, hex_of

REFERENCE = "local/hostile:1"
PYTHON = "/usr/bin/python3"
PAYLOADS = "/payloads.py"
_LEFT_OUT = frozenset({
    "__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "dist-packages",
    "site-packages", "pydoc_data", "unittest", "distutils",
})  # fmt: skip
_DIRECTORIES = ("dev", "proc", "sys", "tmp", "run", "data", "root")


def write_python_image(file: Path, programs: Iterable[str] = ()) -> None:
    """Write the archive to `file`, with these programs of the host in `/usr/bin`. Raises `CannotStart` when the host's
    Python, or one of them, cannot be copied."""
    write_image(file, gzip.compress(_layer(programs), compresslevel=1, mtime=0), (PYTHON, PAYLOADS, "rest"))


def write_image(file: Path, layer: bytes, command: tuple[str, ...]) -> None:
    """An archive of one layer, packed with gzip."""
    platform = host_platform()
    config = msgspec.json.encode({
        "architecture": platform.architecture,
        "os": platform.os,
        "config": {"Env": ["PATH=/usr/bin:/bin"], "Cmd": list(command), "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(gzip.decompress(layer))]},
    })  # fmt: skip
    pointers = [_pointer(OCI_CONFIG, config), _pointer(f"{OCI_LAYER}+gzip", layer)]
    manifest = msgspec.json.encode(
        {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": pointers[0], "layers": pointers[1:]}
    )
    index = msgspec.json.encode({"schemaVersion": 2, "manifests": [_pointer(OCI_MANIFEST, manifest)]})
    with tarfile.open(file, "w") as archive:
        add_file(archive, "oci-layout", msgspec.json.encode({"imageLayoutVersion": "1.0.0"}))
        add_file(archive, "index.json", index)
        for content in (config, layer, manifest):
            add_file(archive, f"blobs/sha256/{hex_of(digest_of(content))}", content)


def _layer(programs: Iterable[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _DIRECTORIES:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        for source, target in sorted(_files(programs).items(), key=lambda pair: pair[1]):
            info = archive.gettarinfo(source, target.lstrip("/"))
            info.uid = info.gid = 0
            with source.open("rb") as content:
                archive.addfile(info, content)
        add_file(archive, PAYLOADS.lstrip("/"), Path(payloads.__file__).read_bytes())
        add_file(archive, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    return buffer.getvalue()


def _files(programs: Iterable[str]) -> dict[Path, str]:
    """Each file of this host that Python and the programs need, by its real path, and its path in the image."""
    interpreter = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib"))
    modules = list(_library_files(library))
    beside = {program_of_host(name): f"/usr/bin/{name}" for name in programs}
    found = {interpreter: PYTHON} | beside | {file: str(file) for file in modules}
    for shared in shared_libraries([interpreter, *beside, *(file for file in modules if file.suffix == ".so")]):
        found[Path(os.path.realpath(shared))] = shared
    return found


def _library_files(library: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(library):
        names[:] = [name for name in names if name not in _LEFT_OUT and not name.startswith("config-")]
        yield from (Path(folder) / name for name in files)


def program_of_host(name: str) -> Path:
    """Raises `CannotStart`."""
    found = shutil.which(name)
    if found is None:
        raise CannotStart(f"this host has no program {name}")
    return Path(os.path.realpath(found))


def shared_libraries(programs: Iterable[Path]) -> set[str]:
    """The paths at which the loader looks for what these need. Raises `CannotStart`."""
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False)
    words = (word for line in done.stdout.splitlines() if line.startswith("\t") for word in line.split())
    found = {word for word in words if word.startswith("/") and Path(word).exists()}
    if not found:
        raise CannotStart(f"this host's programs cannot be copied into an image: ldd says {done.stderr.strip()!r}")
    return found


def add_file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """One that all may read, of root."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    archive.addfile(info, io.BytesIO(content))


def _pointer(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}

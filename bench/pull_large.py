"""How long the pull of an image with one large layer takes, into an empty cache from a registry on this host, beside
`podman pull` of the same image: 740 MiB that hardly can be packed, and 1,500 MiB that can. Needs root, a registry,
podman. Each round pushes nothing and keeps nothing.

PYTHONPATH=. python bench/pull_large.py [rounds]
"""

import gzip
import hashlib
import io
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import anyio
import msgspec
from figures import Samples, table
from quiet_host import QuietHost, quiet_host

from hawker.clock import SystemClock
from hawker.image.cache import ImageCache
from hawker.image.limits import ImageSettings
from tests.fixtures.parts import OCI_MANIFEST, sha256
from tests.fixtures.registry import Registry, running_registry

_MIB = 1 << 20
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_WORDS = Path(os.__file__).read_bytes()


def _random() -> Iterator[bytes]:
    """600 MiB in files of 4 MiB, and 140 MiB of text."""
    yield from (os.urandom(4 * _MIB) for _ in range(150))
    yield from (_text(number, _MIB // 4) for number in range(560))


def _mixed() -> Iterator[bytes]:
    """12,000 files of 128 KiB, a third of each random."""
    size = 128 * 1024
    yield from (os.urandom(size // 3) + _text(number, size - size // 3) for number in range(12_000))


def _text(number: int, size: int) -> bytes:
    at = number * 7919 % len(_WORDS)
    return (_WORDS[at:] + _WORDS * (size // len(_WORDS) + 1))[:size]


def _layer(contents: Iterator[bytes]) -> tuple[bytes, str]:
    """Packed, and the digest of the archive inside."""
    packed, hashed = io.BytesIO(), hashlib.sha256()

    class Both(io.RawIOBase):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            hashed.update(data)
            return zipped.write(data)

    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as zipped,
        tarfile.open(fileobj=Both(), mode="w|") as archive,  # type: ignore[call-overload]
    ):
        for number, content in enumerate(contents):
            info = tarfile.TarInfo(f"files/{number:06d}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue(), f"sha256:{hashed.hexdigest()}"


def _push(registry: Registry, name: str, contents: Iterator[bytes]) -> str:
    blob, diff = _layer(contents)
    config = msgspec.json.encode(
        {"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": [diff]}, "config": {}}
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": _CONFIG, "digest": sha256(config), "size": len(config)},
        "layers": [{"mediaType": _LAYER, "digest": sha256(blob), "size": len(blob)}],
    }
    for part in (config, blob):
        _, headers = registry.request("POST", f"/v2/{name}/blobs/uploads/")
        place = headers["location"]
        place += f"{'&' if '?' in place else '?'}digest={sha256(part)}"
        registry.request("PUT", place, part, "application/octet-stream")
    registry.request("PUT", f"/v2/{name}/manifests/one", msgspec.json.encode(manifest), OCI_MANIFEST)
    return f"{registry.host}/{name}:one"


async def _pull_ms(reference: str, root: Path) -> float:
    cache = ImageCache(root, ImageSettings(), SystemClock())
    await cache.open()
    try:
        began = perf_counter()
        await cache.pull(reference)
        return (perf_counter() - began) * 1000
    finally:
        await cache.aclose()
        shutil.rmtree(root)


def _podman_ms(host: QuietHost, reference: str, root: Path) -> float:
    podman = ["podman", "--root", f"{root}/root", "--runroot", f"{root}/run"]
    took = host.run([*podman, "pull", "--quiet", "--tls-verify=false", reference]).ms
    host.run([*podman, "system", "reset", "--force"])
    return took


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hawker-bench-") as directory, quiet_host() as host:
        place = Path(directory)
        (place / "registry").mkdir()
        with running_registry(place / "registry") as registry:
            for name, contents in (("random", _random()), ("mixed", _mixed())):
                reference = _push(registry, name, contents)
                hawker_ms, podman_ms = [], []
                for _ in range(rounds):
                    hawker_ms.append(anyio.run(_pull_ms, reference, place / "cache"))
                    podman_ms.append(_podman_ms(host, reference, place / "podman"))
                peer = Samples(f"`podman pull` ({name})", podman_ms)
                print(table([Samples(f"hawker: pull ({name})", hawker_ms), peer], peer))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)

"""Servers on a host beside the node: what a cloud answers at its metadata addresses, and a registry that cheats.

Run as `python -m hawker.chaos.hostile.outside ADDRESS`; prints `ready` once all listen. The name of the repository says
how the registry cheats.
"""

import gzip
import hashlib
import io
import json
import socket
import sys
import tarfile
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

from hawker.image.manifest import host_platform

METADATA_PORT = 80
REGISTRY_PORT = 5000
PEER_PORTS = (4280, 4281, 4282)
_BOMB_MEMBERS = 400
_MEMBER_BYTES = 64 << 20
_DRIP_S = 2.0
_IS_MANIFEST = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}


class _Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever is attacked may hang up."""


class MetadataHandler(BaseHTTPRequestHandler):
    """Gives credentials to whoever asks."""

    def do_GET(self) -> None:
        body = b'{"AccessKeyId":"secret","Token":"secret"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class RegistryHandler(BaseHTTPRequestHandler):
    """`/v2/WAY/INNER/...`: `slow` drips, `quick` is good, `realm` and `redirect` lead to a port of the node's loopback,
    `words` puts a text into its error, `bomb` is a layer that unpacks to 25 GiB."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        _, _, way, inner, kind, name = (*self.path.split("/", 5), "", "", "", "", "")[:6]
        getattr(self, f"_{way}", self._nothing)(inner, kind, name)

    do_HEAD = do_GET

    def _nothing(self, inner: str, kind: str, name: str) -> None:
        self._answer(200 if inner == "" else 404, b"{}")

    def _slow(self, inner: str, kind: str, name: str) -> None:
        """An image whose layer comes a byte now and then, for as long as anybody waits."""
        config, layer, manifest = _parts(_small(inner))
        if kind == "manifests":
            self._answer(200, manifest, _IS_MANIFEST)
        elif name == _digest(config):
            self._answer(200, config)
        else:
            self._drip(len(layer))

    def _drip(self, size: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for _ in range(size - 1):
            self.wfile.write(b" ")
            self.wfile.flush()
            Event().wait(_DRIP_S)

    def _quick(self, inner: str, kind: str, name: str) -> None:
        """A good image, one for each name."""
        self._image(_parts(_small(inner)), kind, name)

    def _realm(self, inner: str, kind: str, name: str) -> None:
        realm = f"http://127.0.0.1:{inner}/latest/secret?x=1"
        self._answer(401, b"{}", {"WWW-Authenticate": f'Bearer realm="{realm}",service="x"'})

    def _redirect(self, inner: str, kind: str, name: str) -> None:
        self._answer(307, b"", {"Location": f"http://127.0.0.1:{inner}/latest/secret"})

    def _words(self, inner: str, kind: str, name: str) -> None:
        self._answer(404, json.dumps({"errors": [{"code": "X", "message": "the password is hunter2 " * 400}]}).encode())

    def _bomb(self, inner: str, kind: str, name: str) -> None:
        self._image(_bomb_parts(), kind, name)

    def _image(self, parts: tuple[bytes, bytes, bytes], kind: str, name: str) -> None:
        config, layer, manifest = parts
        contents = {_digest(each): each for each in (config, layer)}
        if kind == "manifests":
            self._answer(200, manifest, _IS_MANIFEST)
        else:
            self._answer(200, contents.get(name, b""))

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@cache
def _bomb_parts() -> tuple[bytes, bytes, bytes]:
    """An image whose one file is far larger than any disk here."""
    header = tarfile.TarInfo("zeros")
    header.size = _BOMB_MEMBERS * _MEMBER_BYTES
    return _parts(gzip.compress(header.tobuf(tarfile.GNU_FORMAT)) + _zeros() * _BOMB_MEMBERS, _digest(b""))


def _small(content: str) -> bytes:
    """A layer with one file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("content")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content.encode()))
    return gzip.compress(buffer.getvalue(), mtime=0)


def _parts(layer: bytes, unpacked: str = "") -> tuple[bytes, bytes, bytes]:
    """Config, layer and manifest of an image with one layer. `unpacked` is its digest then, worked out unless told."""
    platform = host_platform()
    rootfs = {"type": "layers", "diff_ids": [unpacked or _digest(gzip.decompress(layer))]}
    config = {"architecture": platform.architecture, "os": platform.os, "config": {}, "rootfs": rootfs}
    packed = json.dumps(config).encode()
    prefix = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{prefix}.manifest.v1+json",
        "config": _pointer(f"{prefix}.config.v1+json", packed),
        "layers": [_pointer(f"{prefix}.layer.v1.tar+gzip", layer)],
    }
    return packed, layer, json.dumps(manifest).encode()


def _zeros() -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed:
        for _ in range(_MEMBER_BYTES >> 20):
            packed.write(bytes(1 << 20))
    return buffer.getvalue()


def _pointer(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def main() -> None:
    servers = [_Server(("::", METADATA_PORT), MetadataHandler), _Server(("::", REGISTRY_PORT), RegistryHandler)]
    servers += [_Server(("::", port), MetadataHandler) for port in PEER_PORTS]
    for server in servers:
        Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()

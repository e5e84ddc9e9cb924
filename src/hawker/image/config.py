"""An image as the rest of Hawker sees it: what it is made of and how it wants to be run. Pure.

`read_config` is the one reader of OCI and Docker image configs (image-spec, config.md). Unknown fields are tolerated.
"""

import msgspec

from hawker.ids import Digest
from hawker.image.failure import BadImage


class ImageConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The image's defaults for a machine. `env` is `NAME=value`, in order; the command is `entrypoint`, then `cmd`;
    `user` is a name or number, with a group after a colon, "" for root; `exposed_ports` are like `8080/tcp`;
    `stop_signal` is a name or number, "" for SIGTERM."""

    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    user: str = ""
    working_dir: str = ""
    """An absolute path where the command begins, "" for the root."""
    exposed_ports: tuple[str, ...] = ()
    stop_signal: str = ""
    labels: dict[str, str] = {}
    """The labels that the image's makers noted. Nothing here acts on them."""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A compressed blob. `size` is in bytes, as it is stored, 0 or more."""

    digest: Digest
    size: int
    media_type: str
    """The media type of the layer: it says the compression."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is on the node, whole. `digest` is that of the manifest for this platform; `reference` what it was
    first pulled by; `size_bytes` of its layers, compressed; `rootfs_bytes` of the block image, 0 without one, and
    `rootfs_type` its filesystem; `created_at` is when it was made here, Unix seconds."""

    digest: Digest
    reference: str
    registry: str
    """The host that it came from, empty for what is not from a registry."""
    repository: str
    """The name within the registry, without a tag."""
    tag: str
    """The tag as the reference had it, empty beside a digest alone."""
    config: ImageConfig
    config_digest: Digest
    layers: tuple[Layer, ...]
    size_bytes: int
    rootfs_bytes: int
    rootfs_type: str
    created_at: float

    @property
    def blobs(self) -> frozenset[Digest]:
        """The digests of all blobs that the image is made of."""
        return frozenset({self.digest, self.config_digest, *(layer.digest for layer in self.layers)})


class _Run(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    env: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | str | None = None
    cmd: tuple[str, ...] | str | None = None
    user: str | None = None
    working_dir: str | None = None
    exposed_ports: dict[str, object] | None = None
    stop_signal: str | None = None
    labels: dict[str, str] | None = None


class _Rootfs(msgspec.Struct, frozen=True, kw_only=True):
    diff_ids: tuple[str, ...] = ()


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    config: _Run | None = None
    rootfs: _Rootfs | None = None
    os: str = ""
    architecture: str = ""
    variant: str = ""


class ReadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a config blob: how to run, for which platform, and the digests of the unpacked layers."""

    run: ImageConfig
    os: str
    """The name of the system, `linux` say; an image for another system than the node's is refused."""
    architecture: str
    """The architecture by Go's name, `amd64` or `arm64` say; empty where the image does not say."""
    variant: str
    """The variant of the architecture, `v8` say; empty for any."""
    diff_ids: tuple[str, ...]
    """Lowest layer first, one for each; an unpacked layer that has another digest is refused."""


def read_config(content: bytes) -> ReadConfig:
    """The content of a config blob. Raises `BadImage`."""
    try:
        found = msgspec.json.decode(content, type=_Config)
    except msgspec.DecodeError as error:
        raise BadImage(f"the image's config cannot be read: {error}") from error
    return ReadConfig(
        run=_run(found.config or _Run()),
        os=found.os,
        architecture=found.architecture,
        variant=found.variant,
        diff_ids=found.rootfs.diff_ids if found.rootfs else (),
    )


def _run(found: _Run) -> ImageConfig:
    return ImageConfig(
        env=found.env or (),
        entrypoint=_words(found.entrypoint),
        cmd=_words(found.cmd),
        user=found.user or "",
        working_dir=found.working_dir or "",
        exposed_ports=tuple(found.exposed_ports or ()),
        stop_signal=found.stop_signal or "",
        labels=found.labels or {},
    )


def _words(value: tuple[str, ...] | str | None) -> tuple[str, ...]:
    """Some old builders wrote a bare string."""
    return (value,) if isinstance(value, str) else value or ()

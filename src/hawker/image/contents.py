"""What is here of an image, read from the blob store: its manifest and config, how much is missing; and what of the
store somebody needs now.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hawker.errors import Unavailable
from hawker.ids import Digest
from hawker.image.blobs import BlobStore
from hawker.image.config import ReadConfig, read_config
from hawker.image.failure import BadImage
from hawker.image.limits import ImageLimits
from hawker.image.manifest import Manifest, Platform, check_platform, compression_of, media_type_of, read_manifest
from hawker.image.push import PushedImage
from hawker.image.unpack import LayerBlob


class ImageContents:
    """The parts of an image that the blob store has: its manifest, its config, and how much is missing. Blocking, but
    quick."""

    def __init__(self, blobs: BlobStore, limits: ImageLimits) -> None:
        self._blobs = blobs
        self._limits = limits

    def manifest(self, digest: Digest) -> Manifest:
        """The manifest of an image. Raises `Unavailable` when it is gone."""
        try:
            found = read_manifest(self._blobs.read(digest), self._limits)
        except FileNotFoundError as error:
            raise Unavailable(f"the manifest {digest} is not here any more; resolve it again") from error
        assert isinstance(found, Manifest), "only manifests of images are kept"
        return found

    def config(self, manifest: Manifest) -> ReadConfig:
        return read_config(self.raw_config(manifest))

    def raw_config(self, manifest: Manifest) -> bytes:
        return self._blobs.read(manifest.config.digest)

    def pushed(self, digest: Digest) -> PushedImage:
        """The image as it goes to a registry. Raises `Unavailable` when it is gone."""
        manifest, content = self.manifest(digest), self._blobs.read(digest)
        return PushedImage(
            digest=digest,
            manifest=manifest,
            content=content,
            media_type=media_type_of(content),
            blob=self._blobs.path,
        )

    def check_config(self, manifest: Manifest, platform: Platform) -> None:
        """Checks that the config fits the manifest and the platform, before the layers are fetched for nothing. Raises
        `BadImage`."""
        config = self.config(manifest)
        check_platform(config.os, config.architecture, platform)
        if len(config.diff_ids) != len(manifest.layers):
            raise BadImage(f"the image has {len(manifest.layers)} layers, its config lists {len(config.diff_ids)}")

    def missing_bytes(self, manifest: Manifest) -> int:
        """Packed; a layer that the image has twice counts once."""
        blobs = {blob.digest: blob for blob in (manifest.config, *manifest.layers)}.values()
        return sum(blob.size for blob in blobs if not self._blobs.has(blob.digest))

    def is_whole(self, digest: Digest) -> bool:
        """Whether the manifest of an image is here, and all that it names."""
        return self._blobs.has(digest) and not self.missing_bytes(self.manifest(digest))

    def layers(self, manifest: Manifest) -> list[LayerBlob]:
        return [
            LayerBlob(layer.digest, self._blobs.path(layer.digest), compression_of(layer)) for layer in manifest.layers
        ]


class Pins:
    """Digests that somebody needs now and that no pruning may take."""

    def __init__(self) -> None:
        self._counts: dict[Digest, int] = {}

    def has(self, digest: Digest) -> bool:
        return digest in self._counts

    @contextmanager
    def hold(self, *digests: Digest) -> Iterator[None]:
        for digest in digests:
            self._counts[digest] = self._counts.get(digest, 0) + 1
        try:
            yield
        finally:
            for digest in digests:
                self._counts[digest] -= 1
                if not self._counts[digest]:
                    del self._counts[digest]

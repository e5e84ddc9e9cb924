"""The images of a simulated node: one, which is brought here in virtual time. The real cache has tests of its own."""

from pathlib import Path
from typing import Any

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.ids import Digest
from hawker.image.cache import ImageCache
from hawker.image.config import Image, ImageConfig
from hawker.image.limits import ImageSettings
from hawker.image.reference import Reference
from hawker.image.resolve import Resolved


class FakeRegistry:
    """Outlives the daemon: what is cached here, how long a pull takes, and how many of the next ones fail."""

    def __init__(self) -> None:
        self.cached: dict[str, Image] = {}
        self.pull_s = 0.5
        self.fails = 0


def block_file(digest: Digest) -> Path:
    """Where a guest's image would be; nobody looks."""
    return Path("/images") / f"{digest.removeprefix('sha256:')}.erofs"


class FakeImages(ImageCache):
    """Keeps what flows ask of the cache; touches no file."""

    def __init__(self, registry: FakeRegistry, clock: Clock) -> None:
        super().__init__(Path("images"), ImageSettings(), clock)
        self._registry = registry
        self._now = clock

    async def open(self) -> None:
        """Nothing to repair."""

    async def resolve(self, reference: Reference | str, *arguments: Any, **named: Any) -> Resolved:
        name = str(reference)
        return Resolved(
            reference=name,
            registry="",
            repository=name,
            tag="latest",
            digest=Digest(f"sha256:{name.encode().hex():0<64}"),
            size_bytes=1_000_000,
        )

    async def fetch(self, resolved: Resolved, *arguments: Any, **named: Any) -> None:
        await self._now.sleep(self._registry.pull_s)
        if self._registry.fails > 0:
            self._registry.fails -= 1
            raise Unavailable("the registry does not answer")

    async def build(self, resolved: Resolved, *arguments: Any, **named: Any) -> Image:
        image = Image(
            digest=resolved.digest,
            reference=resolved.reference,
            registry="",
            repository=resolved.repository,
            tag="latest",
            config=ImageConfig(cmd=("serve",)),
            config_digest=resolved.digest,
            layers=(),
            size_bytes=resolved.size_bytes,
            rootfs_bytes=0,
            rootfs_type="",
            created_at=self._now.now(),
        )
        self._registry.cached[resolved.digest] = image
        return image

    def find(self, reference_or_digest: str) -> Image | None:
        return self._registry.cached.get(reference_or_digest)

    def block_path(self, digest: Digest) -> Path:
        return block_file(digest)

    def mark_used(self, digest: Digest) -> None:
        """Nothing is ever pruned."""

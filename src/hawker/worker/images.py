"""Which images a machine is made from: its own, or one for each of its containers; and what their names mean now."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import anyio
import msgspec

from hawker.config import MachineConfig
from hawker.config.effective import container_image, image_names
from hawker.errors import leaf_of
from hawker.ids import Digest
from hawker.image.blobs import ImageReader
from hawker.image.manifest import Resolved
from hawker.image.registry import Credentials
from hawker.value_object import ValueObject

_AT_ONCE = 4  # registries are asked for so many images of one order at the same time


class Resolver(Protocol):
    """The one that knows the meaning of an image's name (`image.cache.ImageCache` is one)."""

    async def resolve(self, reference: str, credentials: Credentials | None, *, org: ImageReader) -> Resolved: ...


class Logins(Protocol):
    """The logins of organizations at registries (`secret.registry_logins.RegistryLogins`)."""

    async def for_image(self, org: str, reference: str) -> Credentials | None: ...


class Versioned(Protocol):
    """A machine's record, or an older version in it."""

    @property
    def image(self) -> Resolved: ...
    @property
    def container_images(self) -> Mapping[str, Resolved]: ...


class Images(ValueObject, frozen=True):
    """`shown` is the machine's own, else its first container's; `of_containers` one for each, by its name."""

    shown: Resolved
    of_containers: dict[str, Resolved] = msgspec.field(default_factory=dict)


class OrgImages(ValueObject, frozen=True):
    """Images' names as an organization may ask for their meaning: with its logins."""

    images: Resolver
    logins: Logins
    org: str
    """The slug of the organization whose logins are used."""

    async def meaning(self, name: str) -> Resolved:
        credentials = await self.logins.for_image(self.org, name)
        return await self.images.resolve(name, credentials, org=ImageReader(self.org))


async def resolve(images: OrgImages, config: MachineConfig) -> Images:
    """The images of a config, all of them or none, as the organization may have them. Raises `BadRequest` when there is
    no such image for it, `Unavailable` when its registry does not answer and nothing is cached."""
    containers, wanted = config.containers or (), image_names(config)
    found: dict[str, Resolved] = {}
    for first in range(0, len(wanted), _AT_ONCE):
        found |= await _resolve_all(images, wanted[first : first + _AT_ONCE])
    shown = config.image or (container_image(config, containers[0]) if containers else "")
    return Images(found[shown], {each.name or "": found[container_image(config, each)] for each in containers})


async def _resolve_all(images: OrgImages, names: Sequence[str]) -> dict[str, Resolved]:
    if len(names) == 1:
        return {names[0]: await images.meaning(names[0])}
    found: dict[str, Resolved] = {}

    async def ask(name: str) -> None:
        found[name] = await images.meaning(name)

    try:
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(ask, name)
    except BaseExceptionGroup as group:
        raise leaf_of(group.exceptions[0]) from group.__cause__
    return found


def needed(version: Versioned) -> tuple[Resolved, ...]:
    """The images that the root filesystems of a version are made from, each once."""
    images = version.container_images.values() if version.container_images else (version.image,)
    return tuple({image.digest: image for image in images}.values())


def digests_of(version: Versioned) -> frozenset[Digest]:
    return frozenset(image.digest for image in needed(version))

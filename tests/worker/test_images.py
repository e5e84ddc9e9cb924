from typing import Any

import anyio.lowlevel
import msgspec
import pytest

from hawker.config import MachineConfig
from hawker.errors import BadRequest
from hawker.ids import Digest
from hawker.image.blobs import ImageReader
from hawker.image.manifest import Resolved
from hawker.image.registry import Credentials
from hawker.log import Secret
from hawker.worker.images import OrgImages, digests_of, needed, resolve
from tests.worker.machines import machine

pytestmark = pytest.mark.anyio


def resolved(name: str) -> Resolved:
    digest = Digest(f"sha256:{name}")
    return Resolved(reference=name, registry="", repository=name, tag="", digest=digest, size_bytes=1)


class Registry:
    """Knows every image but `nope`; remembers what was asked and how many asked at once."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.shown: list[str] = []
        self.here = self.most = 0

    async def resolve(self, reference: str, credentials: Credentials | None, *, org: ImageReader) -> Resolved:
        self.asked.append(reference)
        self.shown.append("" if credentials is None else credentials.username)
        self.here += 1
        self.most = max(self.most, self.here)
        await anyio.lowlevel.checkpoint()
        self.here -= 1
        if reference == "nope":
            raise BadRequest("there is no image nope")
        return resolved(reference)


class OneLogin:
    async def for_image(self, org: str, reference: str) -> Credentials | None:
        return Credentials("ada", Secret("pw")) if (org, reference) == ("acme", "private") else None


def of(registry: Registry, org: str = "acme") -> OrgImages:
    return OrgImages(registry, OneLogin(), org)


def config(*containers: dict[str, Any], image: str | None = None) -> MachineConfig:
    return msgspec.convert({"image": image, "containers": containers}, MachineConfig)


async def test_a_machine_without_containers_has_its_own_image() -> None:
    found = await resolve(of(Registry()), MachineConfig(image="nginx"))
    assert (found.shown, found.of_containers) == (resolved("nginx"), {})


async def test_each_container_has_its_image_and_the_first_is_shown() -> None:
    found = await resolve(of(Registry()), config({"name": "web", "image": "nginx"}, {"name": "db", "image": "redis"}))
    assert found.shown == resolved("nginx")
    assert found.of_containers == {"web": resolved("nginx"), "db": resolved("redis")}


async def test_the_machines_own_image_is_shown_and_stands_in() -> None:
    found = await resolve(of(Registry()), config({"name": "web"}, {"name": "db", "image": "redis"}, image="own"))
    assert found.shown == resolved("own")
    assert found.of_containers == {"web": resolved("own"), "db": resolved("redis")}


@pytest.mark.parametrize(("org", "shown"), [("acme", ["", "ada"]), ("other", ["", ""])])
async def test_an_organizations_login_is_shown_for_its_own_images(org: str, shown: list[str]) -> None:
    registry = Registry()
    await resolve(of(registry, org), config({"name": "a", "image": "public"}, {"name": "b", "image": "private"}))
    assert registry.shown == shown


async def test_names_are_asked_for_once_and_a_few_at_a_time() -> None:
    registry = Registry()
    await resolve(of(registry), config(*({"name": f"c{number}", "image": f"i{number // 2}"} for number in range(16))))
    assert len(registry.asked) == 8
    assert registry.most == 4


async def test_one_that_is_not_there_refuses_all() -> None:
    with pytest.raises(BadRequest, match="no image nope"):
        await resolve(of(Registry()), config({"name": "a", "image": "nope"}, {"name": "b", "image": "nginx"}))


def test_the_image_of_a_machine_with_containers_is_only_shown() -> None:
    images = {"web": resolved("a"), "db": resolved("b"), "log": resolved("b")}
    record = msgspec.structs.replace(machine(), container_images=images)
    assert needed(record) == (resolved("a"), resolved("b"))
    assert digests_of(machine()) == {machine().image.digest}

"""Images that cannot be had: a clear error, no machine, and nothing of it left on the disk."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.api.contract.image import LIST_IMAGES, PULL_IMAGE, PullRequest
from hawker.errors import BadRequest, HawkerError, NoRoom, Unavailable
from hawker.host.facts import disk_of
from hawker.host.mount import mount, unmount
from tests.e2e.images import variant
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.fixtures.parts import ImageParts, layer, push, tar
from tests.fixtures.registry import USER, Registry, running_registry
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]

MIB = 1 << 20


async def refusal(shop: Shop, reference: str) -> HawkerError:
    """Of an order; there is no machine and no image afterwards."""
    before = (await shop.client.call(LIST_IMAGES)).images
    with pytest.raises(HawkerError) as refused:
        await shop.order({"image": reference})
    assert await shop.machines() == []
    assert (await shop.client.call(LIST_IMAGES)).images == before
    return refused.value


async def test_an_image_that_the_registry_does_not_have(shop: Shop, registry: Registry) -> None:
    reference = f"{registry.host}/test/unknown:v1"
    error = await refusal(shop, reference)
    assert isinstance(error, BadRequest)
    assert f"failed to get manifest {reference}: MANIFEST_UNKNOWN" in str(error)


async def test_a_registry_that_is_not_there(shop: Shop) -> None:
    error = await refusal(shop, "127.0.0.1:1/test/image:v1")
    assert isinstance(error, Unavailable)
    assert "127.0.0.1:1" in str(error)


async def test_a_registry_that_wants_a_password(shop: Shop, private_registry: Registry) -> None:
    error = await refusal(shop, f"{private_registry.host}/test/secret:v1")
    assert isinstance(error, BadRequest)
    assert "UNAUTHORIZED" in str(error)


async def test_a_wrong_password(shop: Shop, private_registry: Registry, toolbox_parts: ImageParts) -> None:
    reference = push(private_registry, "test/secret", "v1", toolbox_parts)
    body = PullRequest(reference=reference, username=USER, password="a guess")
    with pytest.raises(BadRequest, match="UNAUTHORIZED") as refused:
        async with shop.client.stream(PULL_IMAGE, body=body) as events:
            _ = [event async for event in events]
    assert "a guess" not in str(refused.value)


@pytest.mark.parametrize("reference", ["", "a/UPPER", "a b", "../../etc/passwd", "x@sha256:12", "oci:relative/path"])
async def test_a_text_that_is_no_reference(shop: Shop, reference: str) -> None:
    error = await refusal(shop, reference)
    assert error.status in (400, 422)
    assert "image" in str(error) or reference in str(error)


async def test_a_blob_that_is_not_what_its_digest_says(
    shop: Shop, tmp_path: Path, toolbox_parts: ImageParts, node: RunningNode
) -> None:
    """A byte of the layer is turned in the registry's own storage."""
    image = variant(toolbox_parts, "tampered")
    with running_registry(tmp_path) as registry:
        reference = push(registry, "test/tampered", "v1", image)
        digest = image.layers[-1].digest
        turn_a_byte(tmp_path, digest)
        machine = await shop.order({"image": reference})
        await shop.gone(machine.id)
    assert digest in await failure_of(shop, machine.id)
    await eventually(lambda: not files_named(digest.removeprefix("sha256:"), node.data_dir / "images"))
    await eventually(lambda: not files_named(machine.id, node.data_dir))


def turn_a_byte(storage: Path, digest: str) -> None:
    (blob,) = storage.glob(f"data/**/{digest.removeprefix('sha256:')}/data")
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)


def files_named(name: str, below: Path) -> list[str]:
    """The node goes on to make and remove directories meanwhile."""
    return [each for _, folders, files in os.walk(below) for each in (*folders, *files) if name in each]


async def failure_of(shop: Shop, machine_id: str) -> str:
    """What the history says of a machine that was never launched."""
    last = (await shop.events(machine_id))[-1]
    assert (last.type, last.status) == ("launch", "launch_failed")
    return last.error


@pytest.fixture
def cramped(tmp_path: Path) -> Iterator[RunningNode]:
    """A node with 48 MiB of disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount("tmpfs", disk, "tmpfs", 0, f"size={48 * MIB}")
    try:
        with running_node(
            disk / "node", "--ephemeral", "--free-disk-floor-mib", "0", "--machine-disk-mib", "0"
        ) as node:
            yield node
    finally:
        unmount(disk)


@pytest.mark.long(
    reason="a disk and a node of its own; tests/image/test_download.py and tests/e2e/test_full_disk.py have full disks"
)
async def test_a_disk_that_is_full(cramped: RunningNode, registry: Registry) -> None:
    noise = os.urandom(64 * MIB)
    reference = push(registry, "test/large", "v1", ImageParts([layer(tar(("noise", noise)))], {"Cmd": ["/noise"]}))
    async with cramped.client() as client:
        shop = await Shop(client, "shop").open()
        small = await shop.run({"image": HELLO})
        free = disk_of(cramped.data_dir).free_bytes
        try:
            machine = await shop.order({"image": reference})
        except NoRoom as error:
            told = str(error)
        else:
            await shop.gone(machine.id)
            told = await failure_of(shop, machine.id)
        assert "no space left" in told
        await eventually(lambda: abs(disk_of(cramped.data_dir).free_bytes - free) < MIB)
        assert await shop.said(small.id, "/bin/hello", "echo", "fine") == "fine\n"
        assert (await shop.run({"image": HELLO})).state == "started"

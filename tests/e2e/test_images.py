"""Real images on a real node: pulled from a real registry, read from files, imported, pruned."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import anyio
import msgspec
import pytest

from hawker.api.client import Client
from hawker.api.contract.image import (
    IMPORT_IMAGE,
    LIST_IMAGES,
    PRUNE_IMAGES,
    PULL_IMAGE,
    ImageInfo,
    ImportQuery,
    PullEvent,
    PullRequest,
)
from hawker.api.contract.run import LIST_RUNS, ListRunsQuery
from tests.e2e.images import variant, write_docker_archive, write_layout, write_oci_archive
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.e2e.web import answers, ask
from tests.fixtures.debian_image import PAGE
from tests.fixtures.parts import ImageParts, push
from tests.fixtures.registry import PASSWORD, USER, Registry
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]

DebianImage = Callable[[Registry], str]
SMALL = {"guest": {"memory_mb": 64}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, private_registry: Registry) -> Iterator[RunningNode]:
    """One that knows the private registry's password."""
    place = tmp_path_factory.mktemp("node")
    auths = {private_registry.host: {"username": USER, "password": PASSWORD}}
    (place / "auth.json").write_bytes(msgspec.json.encode({"auths": auths}))
    with running_node(place, "--ephemeral", "--registry-auth-file", f"{place}/auth.json") as node:
        yield node


async def pull(client: Client, reference: str) -> list[PullEvent]:
    async with client.stream(PULL_IMAGE, body=PullRequest(reference=reference)) as events:
        return [event async for event in events]


async def images(client: Client) -> dict[str, ImageInfo]:
    """By digest."""
    return {image.digest: image for image in (await client.call(LIST_IMAGES)).images}


def archive(file: Path, image: ImageParts, form: str) -> Path:
    if form == "oci-archive":
        write_oci_archive(file, image)
    else:
        write_docker_archive(file, image, "demo/docker:v1")
    return file


async def chunks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 65_536):
        yield content[start : start + 65_536]


@pytest.mark.long(
    reason="debootstrap makes a Debian from a mirror, which takes a checkout a minute and asks a host that others run; "
    "images of programs of this host, through a real registry too, are the short form"
)
@pytest.mark.timeout(2700)  # whoever comes first makes it, and the others wait
@pytest.mark.slow
async def test_a_real_debian_runs_nginx_and_python(shop: Shop, registry: Registry, debian_image: DebianImage) -> None:
    reference = debian_image(registry)
    events = await pull(shop.client, reference)
    assert events[-1].stage == "done" and events[-1].digest
    assert {event.stage for event in events} >= {"downloading", "unpacking"}
    web = await shop.run({"image": reference, "guest": {"memory_mb": 512}})
    await eventually(lambda: answers(web.private_ip, 80))
    assert ask(web.private_ip, port=80).body == PAGE.decode()
    assert await shop.said(web.id, "python3", "-c", "print(6 * 7)") == "42\n"
    assert await shop.said(web.id, "pwd") == "/srv\n"
    assert (await shop.exec(web.id, "ls", "/var/log/bootstrap.log")).exit_code != 0
    await shop.stop(web.id, signal="SIGQUIT")
    await shop.wait(web.id, "stopped")
    assert [exit.exit_code for exit in await shop.exits(web.id)] == [0]


async def test_ten_machines_of_one_image_pull_it_once(
    shop: Shop, registry: Registry, toolbox_parts: ImageParts
) -> None:
    reference = push(registry, "test/ten", "v1", variant(toolbox_parts, "ten"))
    ids: list[str] = []

    async def order() -> None:
        ids.append((await shop.order({"image": reference, **SMALL})).id)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(order)
    machines = [await shop.wait(machine_id, "started") for machine_id in ids]
    (digest,) = {machine.image_ref.digest for machine in machines}
    pulls = (await shop.client.call(LIST_RUNS, query=ListRunsQuery(flow="pull"))).runs
    assert Counter(run.resource_id.partition("@")[0] for run in pulls)[digest] == 1
    assert (await images(shop.client))[digest].machines == 10


async def test_a_private_registry_is_open_to_who_knows_the_password(
    shop: Shop, private_registry: Registry, toolbox_parts: ImageParts
) -> None:
    reference = push(private_registry, "test/private", "v1", variant(toolbox_parts, "private"))
    machine = await shop.run({"image": reference, **SMALL})
    assert await shop.said(machine.id, "ls", "/etc/private") == "/etc/private\n"


async def test_a_digest_pins_the_image_whatever_becomes_of_the_tag(
    shop: Shop, registry: Registry, toolbox_parts: ImageParts
) -> None:
    old = variant(toolbox_parts, "old")
    reference = push(registry, "test/moved", "v1", old)
    push(registry, "test/moved", "v1", variant(toolbox_parts, "new"))
    pinned = await shop.run({"image": f"{reference}@{old.digest}", **SMALL})
    latest = await shop.run({"image": reference, **SMALL})
    assert await shop.said(pinned.id, "ls", "/etc/old") == "/etc/old\n"
    assert await shop.said(latest.id, "ls", "/etc/new") == "/etc/new\n"
    assert pinned.image_ref.digest == old.digest != latest.image_ref.digest


@pytest.mark.parametrize("form", ["oci", "oci-archive", "docker-archive"])
async def test_images_are_read_from_files_of_the_node(
    shop: Shop, tmp_path: Path, toolbox_parts: ImageParts, form: str
) -> None:
    image = variant(toolbox_parts, form)
    if form == "oci":
        reference = write_layout(tmp_path / "layout", image)
    else:
        reference = f"{form}:{archive(tmp_path / 'image.tar', image, form)}"
    machine = await shop.run({"image": reference, **SMALL})
    assert await shop.said(machine.id, "ls", f"/etc/{form}") == f"/etc/{form}\n"


@pytest.mark.parametrize("form", ["oci-archive", "docker-archive"])
async def test_an_imported_image_is_ordered_by_its_name(
    shop: Shop, tmp_path: Path, toolbox_parts: ImageParts, form: str
) -> None:
    name = f"demo/{form}:v1"
    content = archive(tmp_path / "image.tar", variant(toolbox_parts, f"imported-{form}"), form).read_bytes()
    imported = await shop.client.upload(IMPORT_IMAGE, chunks(content), query=ImportQuery(reference=name))
    machine = await shop.run({"image": name, **SMALL})
    assert machine.image_ref.digest == imported.digest
    assert (await shop.exec(machine.id, "ls", f"/etc/imported-{form}")).exit_code == 0


async def test_prune_leaves_what_machines_use_even_stopped_ones(
    shop: Shop, registry: Registry, toolbox_parts: ImageParts
) -> None:
    used = await shop.run({"image": push(registry, "test/used", "v1", variant(toolbox_parts, "used")), **SMALL})
    await shop.stop(used.id)
    await shop.wait(used.id, "stopped")
    unused = (await pull(shop.client, push(registry, "test/unused", "v1", variant(toolbox_parts, "unused"))))[-1].digest
    pruned = await shop.client.call(PRUNE_IMAGES)
    assert unused in pruned.removed and pruned.freed_bytes > 0
    assert used.image_ref.digest in await images(shop.client)
    await shop.start(used.id)
    await shop.wait(used.id, "started")
    assert await shop.said(used.id, "ls", "/etc/used") == "/etc/used\n"
    await shop.destroy(used.id)
    await shop.gone(used.id)
    assert used.image_ref.digest in (await shop.client.call(PRUNE_IMAGES)).removed


async def test_a_machine_that_was_updated_keeps_only_its_new_image(
    shop: Shop, registry: Registry, toolbox_parts: ImageParts
) -> None:
    reference = push(registry, "test/first", "v1", variant(toolbox_parts, "first"))
    machine = await shop.run({"image": reference, **SMALL})
    await shop.update(machine.id, {"image": HELLO})
    await shop.wait(machine.id, "started")
    assert machine.image_ref.digest in (await shop.client.call(PRUNE_IMAGES)).removed
    assert answers(machine.private_ip) or await eventually(lambda: answers(machine.private_ip))

"""Volumes on a real node: what a machine writes is there for its next start and for the next machine, whatever the
image says about the place where it is mounted.
"""

import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.api.contract.app import DELETE_APP, GET_APP, AppParams, DeleteAppQuery
from hawker.api.contract.volume import (
    CREATE_VOLUME,
    DELETE_VOLUME,
    EXTEND_VOLUME,
    GET_VOLUME,
    LIST_VOLUMES,
    CreateVolumeRequest,
    ExtendVolumeAnswer,
    ExtendVolumeRequest,
    Volume,
    VolumeParams,
)
from hawker.errors import NotFound, Unprocessable, WrongState
from hawker.host.mount import mounts
from tests.e2e.images import write_layout
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import Shop
from tests.fixtures.parts import ImageParts, layer, tar
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]
GIB = 1 << 30


async def make(shop: Shop, **fields: Any) -> Volume:
    body = msgspec.convert({"name": "data", "size_gb": 1, "encrypted": False, **fields}, CreateVolumeRequest)
    return await shop.client.call(CREATE_VOLUME, params=AppParams(app_name=shop.app), body=body)


def params(shop: Shop, volume: Volume) -> VolumeParams:
    return VolumeParams(app_name=shop.app, volume_id=volume.id)


async def seen(shop: Shop, volume: Volume) -> Volume:
    return await shop.client.call(GET_VOLUME, params=params(shop, volume))


async def extend(shop: Shop, volume: Volume, size_gb: int) -> ExtendVolumeAnswer:
    body = ExtendVolumeRequest(size_gb=size_gb)
    return await shop.client.call(EXTEND_VOLUME, params=params(shop, volume), body=body)


def mounted(image: str, volume: Volume, path: str = "/data") -> dict[str, Any]:
    return {"image": image, "mounts": [{"volume": volume.id, "path": path}]}


async def test_a_volume_is_there_when_its_order_is_answered_with_real_figures(shop: Shop) -> None:
    volume = await make(shop, size_gb=2)
    assert (volume.state, volume.size_gb, volume.attached_machine_id) == ("created", 2, None)
    assert volume.bytes_total is not None and 1.8 * GIB < volume.bytes_total <= 2 * GIB
    assert volume.blocks is not None and volume.block_size is not None
    assert volume.bytes_total == volume.blocks * volume.block_size
    listed = (await shop.client.call(LIST_VOLUMES, params=AppParams(app_name=shop.app))).items
    assert [each.id for each in listed] == [volume.id]
    assert (await shop.client.call(GET_APP, params=AppParams(app_name=shop.app))).volume_count == 1


async def test_files_of_a_machine_are_there_after_a_restart_and_for_the_next_machine(
    shop: Shop, toolbox_image: str
) -> None:
    volume = await make(shop)
    first = await shop.run(mounted(toolbox_image, volume))
    await shop.shell(first.id, "echo kept > /data/file && echo lost > /tmp/file")
    await shop.restart(first.id)
    await shop.wait(first.id, "started")
    await eventually_said(shop, first.id, "kept\n", "cat", "/data/file")
    assert (await shop.exec(first.id, "cat", "/tmp/file")).exit_code != 0
    assert (await seen(shop, volume)).attached_machine_id == first.id
    await shop.destroy(first.id)
    await shop.gone(first.id)
    assert (await seen(shop, volume)).attached_machine_id is None
    second = await shop.run({"image": toolbox_image, "mounts": [{"name": "data", "path": "/elsewhere"}]})
    assert second.config is not None and second.config.mounts is not None
    assert second.config.mounts[0].volume == volume.id
    assert await shop.said(second.id, "cat", "/elsewhere/file") == "kept\n"


async def eventually_said(shop: Shop, machine_id: str, text: str, *command: str) -> None:
    async def so() -> bool:
        return (await shop.exec(machine_id, *command)).stdout == text

    await eventually(so)


async def test_figures_are_those_of_the_filesystem_whether_it_is_mounted_or_not(
    shop: Shop, toolbox_image: str, node: RunningNode
) -> None:
    volume = await make(shop)
    machine = await shop.run(mounted(toolbox_image, volume))
    await shop.shell(machine.id, "head -c 100000000 /dev/zero > /data/file")
    used = (await seen(shop, volume)).bytes_used
    assert used is not None and used > 100_000_000
    await shop.stop(machine.id)
    await shop.wait(machine.id, "stopped")
    assert not mounts(node.place.volumes)

    async def tells_it() -> bool:
        return (await seen(shop, volume)).bytes_used == pytest.approx(used, rel=0.01)

    await eventually(tells_it)  # the kernel writes them when the last mount namespace lets go: another test's may be it


async def test_a_full_volume_ends_at_its_size(shop: Shop, toolbox_image: str) -> None:
    """Written by the machine's own program: a call waits for a minute at most, and a busy disk may take longer."""
    script = "head -c 1100000000 /dev/zero > /data/file; echo ended with $?; exec sleep 3600"
    volume = await make(shop)
    machine = await shop.run({**mounted(toolbox_image, volume), "init": {"exec": ["sh", "-c", script]}})

    async def ended() -> str:
        said = await shop.logs(machine.id)
        return said if "ended with" in said else ""

    said = await eventually(ended, 300.0)
    assert "No space left" in said and "ended with 0" not in said


async def test_a_volume_grows_and_keeps_what_is_in_it(shop: Shop, toolbox_image: str) -> None:
    volume = await make(shop)
    machine = await shop.run(mounted(toolbox_image, volume))
    await shop.shell(machine.id, "echo kept > /data/file")
    answer = await extend(shop, volume, 3)
    assert (answer.volume.size_gb, answer.volume.state) == (3, "created")

    async def has_grown() -> bool:
        told = await extend(shop, volume, 3)
        if told.needs_restart:  # a host that may not grow what is in use says so
            await shop.restart(machine.id)
            await shop.wait(machine.id, "started")
        return not told.needs_restart

    await eventually(has_grown)  # it is in use, too, while another test's mount namespace has it
    grown = await seen(shop, volume)
    assert grown.bytes_total is not None and grown.bytes_total > 2.7 * GIB
    await eventually_said(shop, machine.id, "kept\n", "cat", "/data/file")
    with pytest.raises(Unprocessable, match="cannot be made smaller"):
        await extend(shop, volume, 2)


async def test_a_volume_has_one_machine_at_a_time(shop: Shop, toolbox_image: str) -> None:
    volume = await make(shop)
    machine = await shop.run(mounted(toolbox_image, volume))
    with pytest.raises(WrongState, match=f"is attached to machine {machine.id}"):
        await shop.order(mounted(toolbox_image, volume))
    with pytest.raises(WrongState, match="every volume of that name is attached"):
        await shop.order({"image": toolbox_image, "mounts": [{"name": "data", "path": "/data"}]})
    with pytest.raises(WrongState, match="stop that machine and detach the volume, or destroy"):
        await shop.client.call(DELETE_VOLUME, params=params(shop, volume))
    with pytest.raises(NotFound, match="has no volume"):
        await shop.order({"image": toolbox_image, "mounts": [{"volume": "vol_0000000000000000", "path": "/data"}]})


async def test_an_update_may_move_the_volume_and_not_change_it(shop: Shop, toolbox_image: str) -> None:
    volume, other = await make(shop), await make(shop, name="other")
    machine = await shop.run(mounted(toolbox_image, volume))
    await shop.shell(machine.id, "echo kept > /data/file")
    for config in (mounted(toolbox_image, other), {"image": toolbox_image}):
        with pytest.raises(Unprocessable, match="attached until the machine is destroyed"):
            await shop.update(machine.id, config)
    await shop.update(machine.id, mounted(toolbox_image, volume, "/moved"))
    await shop.wait(machine.id, "started")
    await eventually_said(shop, machine.id, "kept\n", "cat", "/moved/file")


async def test_volumes_keep_their_app_from_being_deleted_with_force_false(shop: Shop) -> None:
    await make(shop)
    with pytest.raises(WrongState, match="still has 1 volumes"):
        query = DeleteAppQuery(force=False)
        await shop.client.call(DELETE_APP, params=AppParams(app_name=shop.app), query=query)


async def test_a_deleted_volume_is_let_go_of_and_cannot_be_mounted(shop: Shop, toolbox_image: str) -> None:
    volume = await make(shop)
    assert (await shop.client.call(DELETE_VOLUME, params=params(shop, volume))).state == "pending_destroy"
    with pytest.raises(NotFound, match="has no volume"):
        await shop.order(mounted(toolbox_image, volume))


@pytest.mark.parametrize(
    ("link", "inside"),
    [("/host-etc", "/host-etc"), ("../../../../../../../../etc", "/etc"), ("/proc/1/root/tmp", None)],
    ids=["absolute", "out of the root", "through proc"],
)
async def test_a_link_in_the_image_never_leads_out_of_the_machine(
    shop: Shop, toolbox_parts: ImageParts, tmp_path: Path, link: str, inside: str | None
) -> None:
    """Whatever the link says, the volume is seen within the machine, or the machine fails; the host is as it was."""
    before = set(os.listdir("/etc")), {each.target for each in mounts() if each.target.is_relative_to("/etc")}
    image = write_layout(tmp_path, with_entry(toolbox_parts, tarfile.SYMTYPE, link))
    volume = await make(shop)
    machine = await shop.order(mounted(image, volume))
    state = (await shop.wait(machine.id, "started", "failed", "destroyed")).state
    if state == "started" and inside is not None:
        await shop.shell(machine.id, "echo kept > /data/file")
        assert await shop.said(machine.id, "cat", f"{inside}/file") == "kept\n"
    assert (set(os.listdir("/etc")), {each.target for each in mounts() if each.target.is_relative_to("/etc")}) == before
    if state != "destroyed":
        await shop.destroy(machine.id)
        await shop.gone(machine.id)
    assert (await seen(shop, volume)).attached_machine_id is None


async def test_a_file_where_the_volume_goes_fails_the_machine(
    shop: Shop, toolbox_parts: ImageParts, tmp_path: Path
) -> None:
    image, volume = write_layout(tmp_path, with_entry(toolbox_parts, tarfile.REGTYPE, "")), await make(shop)
    machine = await shop.order(mounted(image, volume))
    await shop.wait(machine.id, "failed", "destroyed")
    assert (await seen(shop, volume)).attached_machine_id is None


def with_entry(image: ImageParts, kind: bytes, link: str) -> ImageParts:
    """The image with `/data` as something else than a directory."""
    there = tarfile.TarInfo("data")
    there.type, there.linkname = kind, link
    return replace(image, layers=[*image.layers, layer(tar(there))])


async def test_a_damaged_filesystem_fails_the_machine_and_keeps_the_volume(
    shop: Shop, toolbox_image: str, node: RunningNode
) -> None:
    volume = await make(shop)
    file = node.place.volumes / volume.id / "disk"
    with file.open("r+b") as stream:
        stream.seek(1024)
        stream.write(os.urandom(2048))
    machine = await shop.order(mounted(toolbox_image, volume))
    await shop.wait(machine.id, "failed", "destroyed")
    event = (await shop.events(machine.id))[-1]
    assert "damaged" in (event.error or "")
    assert file.stat().st_size == GIB and (await seen(shop, volume)).state == "created"


async def test_a_daemon_that_is_killed_gives_the_volume_back_with_what_was_written(
    tmp_path: Path, toolbox_image: str
) -> None:
    with running_node(tmp_path / "node", "--ephemeral") as node:
        async with node.client() as client:
            shop = await Shop(client, "kept").open()
            volume = await make(shop)
            machine = await shop.run(mounted(toolbox_image, volume))
            await shop.shell(machine.id, "echo kept > /data/file")
        node.kill()
        node.start()
        async with node.client() as client:
            again = Shop(client, "kept")
            await eventually_said(again, machine.id, "kept\n", "cat", "/data/file")
            await again.stop(machine.id)
            await again.wait(machine.id, "stopped")
            await again.start(machine.id)
            await again.wait(machine.id, "started")
            await eventually_said(again, machine.id, "kept\n", "cat", "/data/file")
            await again.close()

"""What a machine's config asks for, as seen from inside the machine."""

import base64
from typing import Any

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.secret import UPDATE_SECRETS, UpdateSecretsRequest
from hawker.errors import Unprocessable
from hawker.host.cgroup import find_hierarchies
from hawker.host.mount import mounts
from tests.e2e.images import RUN, toolbox, write_layout
from tests.e2e.running_node import RunningNode
from tests.e2e.shop import HELLO, Shop
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]


async def test_the_environment_has_the_names_that_software_looks_for(shop: Shop) -> None:
    config = {"image": HELLO, "env": {"MINE": "a b=c"}, "metadata": {"fly_process_group": "web"}}
    machine = await shop.run(config)
    lines = (await shop.said(machine.id, "/bin/hello", "env")).splitlines()
    assert dict(line.split("=", 1) for line in lines) | {"HOME": ""} == {
        "FLY_APP_NAME": shop.app,
        "FLY_MACHINE_ID": machine.id,
        "FLY_ALLOC_ID": machine.id,
        "FLY_REGION": "local",
        "FLY_IMAGE_REF": HELLO,
        "FLY_MACHINE_VERSION": machine.version,
        "FLY_PRIVATE_IP": machine.private_ip,
        "FLY_PROCESS_GROUP": "web",
        "FLY_VM_MEMORY_MB": "256",
        "MINE": "a b=c",
        "PATH": "/bin",
        "HOME": "",
    }


async def test_user_directory_and_environment_come_from_the_image(
    shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("image")
    image = toolbox(place / "root", {**RUN, "User": "nobody", "WorkingDir": "/etc"})
    machine = await shop.run({"image": write_layout(place / "layout", image)})
    assert await shop.said(machine.id, "sh", "-c", "pwd; echo $GREETING; cat /proc/self/status | grep Uid") == (
        "/etc\nhello\nUid:\t65534\t65534\t65534\t65534\n"
    )


async def test_a_command_replaces_its_part_of_the_images(shop: Shop) -> None:
    machine = await shop.run({"image": HELLO, "init": {"cmd": ["9090"]}})
    await shop.logged(machine.id, "listening on port 9090")
    init = {"entrypoint": ["/bin/hello", "echo"], "cmd": ["one", "two words"]}
    machine = await shop.order({"image": HELLO, "init": init, "restart": {"policy": "no"}})
    await shop.logged(machine.id, "one two words\n")


async def test_files_are_there_with_their_modes_before_the_first_command(shop: Shop, toolbox_image: str) -> None:
    def file(path: str, content: bytes, **more: Any) -> dict[str, Any]:
        return {"guest_path": path, "raw_value": base64.b64encode(content).decode(), **more}

    files = [file("/etc/app/settings", b"a=1\n"), file("/opt/run", b"#!/bin/sh\necho ran\n", mode=0o755)]
    config = {"image": toolbox_image, "files": files, "init": {"exec": ["sh", "-c", "/opt/run; exec sleep 60"]}}
    machine = await shop.run(config)
    await shop.logged(machine.id, "ran\n")
    assert await shop.said(machine.id, "cat", "/etc/app/settings") == "a=1\n"
    assert (await shop.said(machine.id, "ls", "-l", "/opt/run", "/etc/app/settings")).count("-rwxr-xr-x") == 1


async def test_a_machine_has_the_host_name_the_resolver_and_the_names_that_it_asks_for(
    shop: Shop, toolbox_image: str
) -> None:
    dns = {"hostname": "web", "nameservers": ["10.0.0.53"], "options": [{"name": "ndots", "value": "2"}]}
    says = ["sh", "-c", "echo i am $ME; exec sleep 60"]
    processes = [{"exec": says, "env_from": [{"env_var": "ME", "field_ref": "id"}]}]
    machine = await shop.run({"image": toolbox_image, "dns": dns, "processes": processes})
    await shop.logged(machine.id, f"i am {machine.id}\n")
    said = await shop.said(machine.id, "sh", "-c", "hostname; cat /etc/resolv.conf")
    assert said == "web\nnameserver 10.0.0.53\noptions ndots:2\n"


async def test_a_machine_is_given_the_secrets_of_its_app(shop: Shop, node: RunningNode, toolbox_image: str) -> None:
    values: dict[str, str | None] = {"KEY": "hush-hush", "CERT": base64.b64encode(b"certificate").decode()}
    body = UpdateSecretsRequest(values=values)
    await shop.client.call(UPDATE_SECRETS, params=AppParams(app_name=shop.app), body=body)
    files = [{"guest_path": "/etc/cert", "secret_name": "CERT", "mode": 0o400}]
    says = ["sh", "-c", "echo key $KEY; cat /etc/cert; exec sleep 60"]
    machine = await shop.run({"image": toolbox_image, "init": {"exec": says}, "files": files})
    await shop.logged(machine.id, "key hush-hush\ncertificate")
    stored = b"".join(file.read_bytes() for file in node.data_dir.glob("hawker.db*"))
    assert b"KEY" in stored and b"hush-hush" not in stored


async def test_the_platform_names_the_machine(shop: Shop, toolbox_image: str) -> None:
    machine = await shop.run({"image": toolbox_image})
    assert await shop.said(machine.id, "hostname") == f"{machine.id}\n"
    hosts = await shop.said(machine.id, "cat", "/etc/hosts")
    assert f"{machine.private_ip} {machine.id} fly-local-6pn" in hosts


async def test_a_machine_has_several_processes_and_ends_with_the_first(shop: Shop, toolbox_image: str) -> None:
    processes = [
        {"exec": ["sh", "-c", "echo one; exec sleep 60"], "env": {"WHO": "one"}},
        {"exec": ["sh", "-c", "echo $WHO; id 2>/dev/null; until test -e /tmp/end; do sleep 0.02; done; exit 3"],
         "env": {"WHO": "two"}, "user": "nobody"},
    ]  # fmt: skip
    machine = await shop.run({"image": toolbox_image, "processes": processes, "restart": {"policy": "no"}})
    await eventually(lambda: _both_wrote(shop, machine.id))
    await shop.exec(machine.id, "touch", "/tmp/end")  # it may be killed with the machine, before it has ended itself
    await shop.wait(machine.id, "stopped")
    assert [exit.exit_code for exit in await shop.exits(machine.id)] == [3]


async def _both_wrote(shop: Shop, machine_id: str) -> bool:
    return set((await shop.logs(machine_id)).split()) >= {"one", "two"}


async def test_exec_passes_input_output_and_status(shop: Shop, toolbox_image: str) -> None:
    machine = await shop.run({"image": toolbox_image})
    answer = await shop.exec(machine.id, "sh", "-c", "cat; echo bad >&2; exit 9", stdin="given\n")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (9, "given\n", "bad\n")
    killed = await shop.shell(machine.id, "kill -9 $$")
    assert (killed.exit_code, killed.exit_signal) == (137, 9)
    missing = await shop.exec(machine.id, "/no/such")
    assert missing.exit_code == 127


async def test_memory_is_limited(shop: Shop, toolbox_image: str) -> None:
    """A shell that doubles a string is killed; the machine goes on."""
    machine = await shop.run({"image": toolbox_image, "guest": {"memory_mb": 64, "cpus": 1}})
    greedy = await shop.shell(machine.id, "x=$(yes | head -c 9000000); while :; do x=$x$x; done")
    assert (greedy.exit_code, greedy.exit_signal) == (137, 9)
    assert await shop.said(machine.id, "echo", "fine") == "fine\n"


async def test_processor_time_is_limited(shop: Shop, node: RunningNode) -> None:
    """What the kernel was told; a busy host may give a machine even less."""
    machine = await shop.run({"image": HELLO, "guest": {"cpu_kind": "shared", "cpus": 2, "memory_mb": 256}})
    group = find_hierarchies(mounts()).of("cpu") / f"hawker-{node.node_id[:4]}" / machine.id
    if (group / "cpu.max").exists():
        quota, period = map(int, (group / "cpu.max").read_text().split())
    else:
        quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    assert quota == 2 * period


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"cache_drive": {"size_mb": 64}}, "config.cache_drive"),
        ({"spot": {"max_price_fraction": 0.5}}, "config.spot"),
        ({"guest": {"gpus": 1}}, "config.guest.gpus"),
    ],
)
async def test_a_field_not_served_yet_is_refused_by_name(shop: Shop, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(Unprocessable, match=named):
        await shop.order({"image": HELLO, **fields})
    assert await shop.machines() == []

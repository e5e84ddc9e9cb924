import base64
from typing import Any

import pytest

from hawker.errors import BadRequest
from hawker.ids import InstanceId
from hawker.image.config import ImageConfig
from hawker.runtime.spec import Ends, FileSpec, InstanceSpec, MountSpec, ProcessSpec
from hawker.sim.node.sim_worker import config_of
from hawker.worker.lifecycle.environment import Surroundings, containers_spec
from hawker.worker.lifecycle.host_adapters import ContainerMounts
from tests.worker.machines import machine

WEB = ImageConfig(env=("A=image",), entrypoint=("/web",), cmd=("serve",), user="www", working_dir="/srv")
DB = ImageConfig(cmd=("/db",))
MOUNTED = ContainerMounts(machine="/m", roots={"web": "/m/web", "db": "/m/db"}, volumes={"shared": "/m/shared"})
AROUND = Surroundings(
    rootfs="/m",
    netns="/netns",
    nameservers=("9.9.9.9",),
    pids=100,
    output_bytes=1 << 20,
    secrets={"KEY": "k", "CERT": base64.b64encode(b"cert").decode()},
)


def spec(
    web: dict[str, Any] | None = None, images: dict[str, ImageConfig] | None = None, **config: Any
) -> InstanceSpec:
    containers = [{"name": "web", "image": "nginx", **(web or {})}, {"name": "db", "image": "redis"}]
    record = machine(config=config_of(containers=containers, **config))
    return containers_spec(record, InstanceId("I1"), images or {"web": WEB, "db": DB}, MOUNTED, AROUND)


def web_of(web: dict[str, Any], **config: Any) -> ProcessSpec:
    return spec(web, **config).processes[0]


def test_the_machine_waits_to_be_told_what_to_run_and_when_to_end() -> None:
    found = spec()
    assert (found.ends, found.rootfs, found.netns, found.files) == (Ends.TOLD, "/m", "/netns", ())
    assert [(each.name, each.root, each.held) for each in found.processes] == [
        ("web", "/m/web", True),
        ("db", "/m/db", True),
    ]


def test_each_container_is_as_its_image_and_the_config_say() -> None:
    web, db = spec({"cmd": ["other"], "user": "root"}).processes
    assert (web.argv, web.user, web.cwd, web.env["A"]) == (("/web", "other"), "root", "/srv", "image")
    assert (db.argv, db.user, db.cwd) == (("/db",), "", "/")


def test_the_machines_variables_are_below_the_containers() -> None:
    web, db = spec({"env": {"B": "web"}}, env={"B": "all", "C": "all"}).processes
    assert (web.env["B"], web.env["C"], db.env["B"]) == ("web", "all", "all")


def test_each_is_told_its_own_image() -> None:
    web, db = spec({"env_from": [{"env_var": "ME", "field_ref": "image"}]}, image=None).processes
    assert (web.env["FLY_IMAGE_REF"], web.env["ME"], db.env["FLY_IMAGE_REF"]) == ("nginx", "nginx", "redis")


def test_a_container_that_names_secrets_gets_those_alone() -> None:
    web, db = spec({"secrets": [{"env_var": "MINE", "name": "KEY"}]}).processes
    assert web.env["MINE"] == "k" and "CERT" not in web.env
    assert db.env["KEY"] == "k" and "CERT" in db.env


def test_files_are_written_into_the_container_that_names_them() -> None:
    web, db = spec(
        {"files": [{"guest_path": "/a", "raw_value": "aGk="}, {"guest_path": "/b", "secret_name": "CERT"}]}
    ).processes
    assert web.files[-2:] == (FileSpec(path="/a", content=b"hi"), FileSpec(path="/b", content=b"cert"))
    assert [file.path for file in db.files] == ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"]


def test_shared_volumes_are_mounted_where_they_are_wanted() -> None:
    web = web_of({"mounts": [{"name": "shared", "path": "/data"}]}, volumes=[{"name": "shared"}])
    assert web.mounts == (MountSpec(source="/m/shared", target="/data"),)


def test_a_container_without_a_command_is_refused_by_its_images_name() -> None:
    with pytest.raises(BadRequest, match="the image nginx"):
        spec(images={"web": ImageConfig(), "db": DB})

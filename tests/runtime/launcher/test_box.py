"""Facts about what becomes of a bundle: which plan, and what is left to crun."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.host.cgroup import Hierarchies
from hawker.ids import InstanceId, MachineId
from hawker.runtime.launcher.box import BoxSurroundings, GroupView, Inexpressible, box_plan, group_views, host_plan
from hawker.runtime.oci_bundle import ContainerPlacement, oci_config
from hawker.runtime.spec import InstanceLimits, InstanceSpec, MountSpec

V1 = Hierarchies({name: Path("/cg", name) for name in ("cpu", "memory", "pids", "devices", "freezer")}, None)
V2 = Hierarchies({}, Path("/cg"))
AROUND = BoxSurroundings(V1, (GroupView("cpu", "cpu"),))
SPEC = InstanceSpec(
    machine_id=MachineId("0123456789abcd"),
    instance_id=InstanceId("I1"),
    hostname="web",
    processes=(),
    limits=InstanceLimits(cpus=2, cpu_weight=100, memory_mib=256, pids=50),
    rootfs="/data/root",
    netns="/data/netns/m",
    mounts=(MountSpec(source="/data/volume", target="/volume"),),
)


def _config(**linux: object) -> bytes:
    placement = ContainerPlacement(Path("/opt/pilot"), ("--listen", "3"), (), "/hawker-ab12/m", cgroup_namespace=True)
    config = msgspec.json.decode(oci_config(SPEC, placement), type=dict[str, Any])
    config["linux"] |= linux
    return msgspec.json.encode(config)


def test_a_bundle_becomes_a_plan_with_its_paths_and_limits() -> None:
    plan = box_plan(_config(), AROUND)
    for text in ("/data/root", "/data/netns/m", "/volume", "/cg/memory/hawker-ab12/m", "268435456", "web"):
        assert text.encode() + b"\0" in plan


def test_of_version_2_the_group_is_in_one_tree_and_has_a_program_for_devices() -> None:
    plan = box_plan(_config(), BoxSurroundings(V2, ()))
    for text in (b"/cg/hawker-ab12/m\0", b"memory.max\0", b"200000 100000\0", b"+pids\0"):
        assert text in plan
    assert b"devices.allow" not in plan


def test_users_of_a_machine_are_mapped_in_a_namespace_of_theirs() -> None:
    ids = [{"containerID": 0, "hostID": 1_000_000, "size": 65_536}]
    namespaces = [{"type": kind} for kind in ("pid", "mount", "user")]
    plan = box_plan(_config(uidMappings=ids, gidMappings=ids, namespaces=namespaces), AROUND)
    assert plan.count(b"0 1000000 65536\n\0") == 2


@pytest.mark.parametrize(
    "linux",
    [
        {"intelRdt": {}},
        {"devices": []},
        {"namespaces": [{"type": "pid", "path": "/proc/1/ns/pid"}]},
        {"namespaces": [{"type": "time"}]},
        {"namespaces": [{"type": "user"}]},
        {"uidMappings": [{"containerID": 0, "hostID": 1, "size": 1}]},
    ],
)
def test_a_spec_a_plan_cannot_express_is_left_to_crun(linux: dict[str, object]) -> None:
    with pytest.raises(Inexpressible):
        box_plan(_config(**linux), AROUND)


def test_a_host_without_a_controller_is_left_to_crun() -> None:
    lacking = Hierarchies({"cpu": Path("/cg/cpu"), "memory": Path("/cg/memory")}, None)
    with pytest.raises(Inexpressible, match="devices, pids"):
        box_plan(_config(), BoxSurroundings(lacking, ()))


def test_a_program_of_the_host_has_the_groups_of_a_bundle_and_nothing_of_its_box() -> None:
    plan = host_plan(_config(), V1, ["/usr/bin/crun", "run"], "/bin")
    assert b"/usr/bin/crun\0" in plan and b"/cg/memory/hawker-ab12/m\0" in plan and b"PATH=/bin\0" in plan
    assert b"/data/root" not in plan


def test_only_hierarchies_that_are_mounted_are_shown() -> None:
    text = "5:devices:/x\n3:name=systemd:/x\n2:cpu,cpuacct:/x\n1:net_cls:/x\n0::/x\n"
    mounted = Hierarchies({name: Path("/cg") for name in ("devices", "cpu", "cpuacct", "name=systemd")}, None)
    assert group_views(text, mounted) == (
        GroupView("devices", "devices"),
        GroupView("systemd", "name=systemd"),
        GroupView("cpu,cpuacct", "cpu,cpuacct"),
    )

"""Facts about what becomes of a bundle: which plan, and what is left to crun."""

import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.host.cgroup import Hierarchies
from hawker.ids import InstanceId, MachineId
from hawker.runtime.launcher.box import (
    USUAL_DEVICES,
    BoxSurroundings,
    GroupView,
    Inexpressible,
    box_plan,
    device_lines,
    device_program,
    group_views,
    host_plan,
)
from hawker.runtime.launcher.oci import OciDeviceRule
from hawker.runtime.oci_bundle import ContainerPlacement, oci_config
from hawker.runtime.spec import InstanceLimits, InstanceSpec, MountSpec

NONE = OciDeviceRule(allow=False, access="rwm")
ALL = (NONE, *USUAL_DEVICES)
_ACCESS = {"m": 1, "r": 2, "w": 4}


def _verdict(program: bytes, kind: int, access: str, major: int, minor: int) -> int:
    """What the program says, carried out as the kernel would: the few instructions that it uses."""
    memory = {0: sum(_ACCESS[letter] for letter in access) << 16 | kind, 4: major, 8: minor}
    registers = [0] * 11
    at = 0
    while True:
        code, pair, offset, number = struct.unpack_from("<BBhi", program, at * 8)
        target, source = pair & 15, pair >> 4
        at += 1
        match code:
            case 0x61:
                registers[target] = memory[offset]
            case 0xBF:
                registers[target] = registers[source]
            case 0xB7:
                registers[target] = number
            case 0x57:
                registers[target] &= number
            case 0x77:
                registers[target] >>= number
            case 0x55:
                at += offset if registers[target] != number else 0
            case 0x5D:
                at += offset if registers[target] != registers[source] else 0
            case 0x95:
                return registers[0]
            case _:
                raise AssertionError(f"no such instruction: {code:x}")


@pytest.mark.parametrize(
    ("kind", "access", "major", "minor", "allowed"),
    [
        (2, "rw", 1, 3, True),  # null
        (2, "rwm", 1, 9, True),  # urandom
        (2, "rw", 136, 77, True),  # a terminal
        (2, "rw", 1, 1, False),  # mem
        (2, "r", 10, 200, False),  # tun
        (1, "r", 8, 0, False),  # a disk
        (1, "m", 8, 0, True),  # its node may be made
        (1, "rm", 8, 0, False),
        (2, "m", 10, 200, True),
    ],
)
def test_only_harmless_devices_can_be_used_and_any_node_be_made(
    kind: int, access: str, major: int, minor: int, allowed: bool
) -> None:
    assert _verdict(device_program(ALL), kind, access, major, minor) == int(allowed)


def test_the_last_rule_that_matches_decides_and_none_is_a_refusal() -> None:
    null = OciDeviceRule(allow=True, access="rwm", type="c", major=1, minor=3)
    never = OciDeviceRule(allow=False, access="rwm", type="c", major=1, minor=3)
    assert _verdict(device_program((null, never)), 2, "r", 1, 3) == 0
    assert _verdict(device_program((never, null)), 2, "r", 1, 3) == 1
    assert _verdict(device_program(()), 2, "r", 1, 3) == 0


def test_the_lines_of_version_1_begin_with_a_refusal_of_everything() -> None:
    lines = device_lines(ALL)
    assert lines[0] == ("devices.deny", "a")
    assert ("devices.allow", "c *:* m") in lines and ("devices.allow", "c 136:* rwm") in lines


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

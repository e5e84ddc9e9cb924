"""Facts about the container that a VMM is put into, as the runtime is told; what it is worth is in tests/escape."""

import json
from pathlib import Path
from typing import Any

import pytest

from hawker.host.cgroup_restore import Bounds
from hawker.ids import MachineId
from hawker.runtime.vmm.contract import JailCell, JailGrant
from hawker.runtime.vmm.crun_jail import CellSurroundings, JailDevice, cell_config, vmm_profile

BOUNDS = Bounds(
    cpu_period_us=100_000, cpu_quota_us=200_000, cpu_shares=77, memory_bytes=1 << 30, swapped_bytes=1 << 30, pids=99
)
TUN = JailDevice("/dev/net/tun", "c", 10, 200)


def _config(
    *, netns: str | None = None, devices: tuple[str, ...] = (), cgroups: bool = True, nodes: tuple[JailDevice, ...] = ()
) -> dict[str, Any]:
    cell = JailCell(
        machine_id=MachineId("0123456789abcd"),
        uid=4321,
        argv=("/usr/bin/vmm", "--quick"),
        grants=(),
        devices=devices,
        netns=netns,
        bounds=BOUNDS,
    )
    around = CellSurroundings(
        root="/srv/root",
        files=(JailGrant(Path("/boot/k"), "/cell/kernel"), JailGrant(Path("/srv/vmm"), "/cell/vmm", writable=True)),
        devices=nodes,
        cgroup="/hawker-ab12/0123456789abcd",
        cgroup_namespace=cgroups,
    )
    return json.loads(cell_config(cell, around))  # type: ignore[no-any-return]


def test_a_cell_is_a_user_without_any_capability() -> None:
    process = _config()["process"]
    assert (process["args"], process["env"], process["cwd"]) == (["/usr/bin/vmm", "--quick"], [], "/")
    assert process["user"] == {"uid": 4321, "gid": 4321, "umask": 0o077}
    assert process["noNewPrivileges"] is True
    assert set(process["capabilities"]) == {"bounding", "effective", "inheritable", "permitted", "ambient"}
    assert all(granted == [] for granted in process["capabilities"].values())
    assert process["oomScoreAdj"] == 0


def test_its_root_is_read_only_and_holds_what_is_shown() -> None:
    config = _config()
    assert config["root"] == {"path": "/srv/root", "readonly": True}
    mounts = {mount["destination"]: mount for mount in config["mounts"]}
    assert set(mounts) == {"/dev", "/cell/kernel", "/cell/vmm"}
    assert mounts["/cell/kernel"]["source"] == "/boot/k"
    assert {"ro", "nosuid", "nodev"} < set(mounts["/cell/kernel"]["options"])
    assert {"rw", "nosuid", "nodev", "noexec"} < set(mounts["/cell/vmm"]["options"])


def test_neither_proc_nor_sys_is_there() -> None:
    assert {mount["type"] for mount in _config()["mounts"]} == {"tmpfs", "bind"}


@pytest.mark.parametrize("cgroups", [True, False])
def test_its_namespaces_are_its_own(cgroups: bool) -> None:
    kinds = [namespace["type"] for namespace in _config(cgroups=cgroups)["linux"]["namespaces"]]
    assert sorted(kinds) == sorted(["mount", "pid", "ipc", "uts", "network", *(["cgroup"] if cgroups else [])])


def test_its_network_is_the_machine_s_or_none_but_never_the_host_s() -> None:
    [joined] = [each for each in _config(netns="/run/n")["linux"]["namespaces"] if each["type"] == "network"]
    [empty] = [each for each in _config()["linux"]["namespaces"] if each["type"] == "network"]
    assert joined == {"type": "network", "path": "/run/n"}
    assert empty == {"type": "network"}


def test_no_device_is_usable_but_those_granted() -> None:
    linux = _config(nodes=(TUN, JailDevice("/dev/data", "b", 7, 3, writable=False)))["linux"]
    assert linux["resources"]["devices"] == [
        {"allow": False, "access": "rwm"},
        {"allow": True, "type": "c", "major": 10, "minor": 200, "access": "rw"},
        {"allow": True, "type": "b", "major": 7, "minor": 3, "access": "r"},
    ]
    own = {"uid": 4321, "gid": 4321}
    assert linux["devices"] == [
        {"path": "/dev/net/tun", "type": "c", "major": 10, "minor": 200, "fileMode": 0o600, **own},
        {"path": "/dev/data", "type": "b", "major": 7, "minor": 3, "fileMode": 0o400, **own},
    ]


def test_vmm_and_guest_are_limited_together() -> None:
    linux = _config()["linux"]
    assert linux["cgroupsPath"] == "/hawker-ab12/0123456789abcd"
    resources = linux["resources"]
    assert resources["cpu"] == {"period": 100_000, "quota": 200_000, "shares": 77}
    assert resources["memory"] == {"limit": 1 << 30, "swap": 1 << 30}
    assert resources["pids"] == {"limit": 99}


def _limit(config: dict[str, Any], kind: str) -> int:
    [limit] = [each for each in config["process"]["rlimits"] if each["type"] == kind]
    assert limit["soft"] == limit["hard"]
    return int(limit["hard"])


def test_a_cell_leaves_no_core_and_pins_memory_only_for_whole_devices() -> None:
    assert _limit(_config(), "RLIMIT_CORE") == 0
    assert _limit(_config(), "RLIMIT_NOFILE") == 4096
    assert _limit(_config(), "RLIMIT_MEMLOCK") == 64 << 10
    assert _limit(_config(devices=("/dev/vfio/vfio", "/dev/vfio/17")), "RLIMIT_MEMLOCK") == BOUNDS.memory_bytes


NEW_NAMESPACES = {"user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "mount": 0x00020000, "cgroup": 0x02000000}


def _rules(name: str) -> list[dict[str, Any]]:
    return [rule for rule in vmm_profile()["syscalls"] if name in rule["names"]]


def test_a_path_not_named_does_not_exist() -> None:
    profile = vmm_profile()
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    assert {rule["action"] for rule in profile["syscalls"]} == {"SCMP_ACT_ALLOW"}
    assert "architectures" not in profile


@pytest.mark.parametrize(
    "name",
    "bpf clone3 flock init_module io_uring_setup kexec_load keyctl mknod mknodat mount move_mount open_by_handle_at "
    "perf_event_open process_vm_readv ptrace setns umount2 unshare userfaultfd".split(),
)
def test_a_call_a_vmm_has_no_use_for_is_not_named(name: str) -> None:
    assert _rules(name) == []


@pytest.mark.parametrize("name", "execve futex ioctl mmap openat ppoll pread64 pwritev recvmsg sendmsg".split())
def test_a_call_every_vmm_makes_is_allowed(name: str) -> None:
    [rule] = _rules(name)
    assert "args" not in rule


@pytest.mark.parametrize("flag", NEW_NAMESPACES.values(), ids=NEW_NAMESPACES)
def test_threads_may_be_made_and_namespaces_not(flag: int) -> None:
    [rule] = _rules("clone")
    [condition] = rule["args"]
    assert (condition["op"], condition["valueTwo"]) == ("SCMP_CMP_MASKED_EQ", 0)
    assert condition["value"] & flag == flag


def test_sockets_are_of_three_families() -> None:
    families = [condition["value"] for rule in _rules("socket") for condition in rule["args"]]
    assert sorted(families) == [1, 2, 10]

"""Facts about what isolates a container machine."""

import platform
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.ids import InstanceId, MachineId
from hawker.runtime.oci_bundle import PILOT_PATH, ContainerPlacement, cpu_shares, oci_config, seccomp_profile
from hawker.runtime.spec import InstanceLimits, InstanceSpec, MountSpec, ProcessSpec
from hawker.runtime.spec_rules import container_root

PLACEMENT = ContainerPlacement(
    pilot=Path("/opt/pilot"),
    arguments=("--listen", "3"),
    environment=(),
    cgroup="/hawker-ab12/0123456789abcd",
    cgroup_namespace=True,
)
SPEC = InstanceSpec(
    machine_id=MachineId("0123456789abcd"),
    instance_id=InstanceId("I1"),
    hostname="web",
    processes=(ProcessSpec(argv=("/bin/web",), env={"SECRET": "x"}),),
    limits=InstanceLimits(cpus=2, cpu_weight=100, memory_mib=256, pids=50),
    rootfs="/data/root",
    netns="/data/netns/m",
)


def _config(spec: InstanceSpec = SPEC, placement: ContainerPlacement = PLACEMENT) -> dict[str, Any]:
    return msgspec.json.decode(oci_config(spec, placement), type=dict[str, Any])


def test_process_1_is_the_pilot_from_a_read_only_mount() -> None:
    config = _config()
    assert config["process"]["args"] == [PILOT_PATH, "--listen", "3"]
    [mount] = [mount for mount in config["mounts"] if mount["destination"] == PILOT_PATH]
    assert (mount["source"], "ro" in mount["options"]) == ("/opt/pilot", True)


def test_the_workload_and_its_secrets_are_not_in_the_bundle() -> None:
    assert b"/bin/web" not in oci_config(SPEC, PLACEMENT)
    assert b"SECRET" not in oci_config(SPEC, PLACEMENT)


def test_limits_are_the_kernels_units() -> None:
    resources = _config()["linux"]["resources"]
    assert resources["cpu"] == {"period": 100_000, "quota": 200_000, "shares": cpu_shares(100)}
    assert resources["memory"] == {"limit": 256 << 20, "swap": 256 << 20}
    assert resources["pids"] == {"limit": 50}
    assert resources["devices"][0]["allow"] is False


@pytest.mark.parametrize("weight, shares", [(1, 2), (10_000, 262_144), (39, 998)])
def test_weights_become_shares(weight: int, shares: int) -> None:
    assert cpu_shares(weight) == shares
    assert round(1 + (shares - 2) * 9_999 / 262_142) == weight  # as the runtime turns them back for v2


def test_namespaces_are_new_but_for_the_given_network() -> None:
    namespaces = _config()["linux"]["namespaces"]
    assert {"type": "network", "path": "/data/netns/m"} in namespaces
    assert {entry["type"] for entry in namespaces} == {"pid", "ipc", "uts", "mount", "cgroup", "network"}


def test_without_a_network_the_hosts_is_used_and_old_kernels_get_no_cgroup_namespace() -> None:
    placement = ContainerPlacement(Path("/opt/pilot"), (), (), "/x", cgroup_namespace=False)
    namespaces = _config(msgspec.structs.replace(SPEC, netns=None), placement)["linux"]["namespaces"]
    assert {entry["type"] for entry in namespaces} == {"pid", "ipc", "uts", "mount"}


def test_dangerous_capabilities_are_absent_from_every_set() -> None:
    for granted in _config()["process"]["capabilities"].values():
        assert not {"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_MODULE", "CAP_SYS_PTRACE"} & set(granted)


def test_kernel_surfaces_are_masked_or_read_only() -> None:
    linux = _config()["linux"]
    assert {"/proc/kcore", "/proc/keys", "/sys/firmware"} <= set(linux["maskedPaths"])
    assert {"/proc/sys", "/proc/sysrq-trigger"} <= set(linux["readonlyPaths"])
    sys_mounts = [mount for mount in _config()["mounts"] if mount["destination"].startswith("/sys")]
    assert sys_mounts
    assert all("ro" in mount["options"] for mount in sys_mounts)


def test_seccomp_refuses_mounts_keys_and_new_user_namespaces() -> None:
    rules = _config()["linux"]["seccomp"]["syscalls"]
    refused = set(rules[0]["names"])
    assert {"mount", "keyctl", "bpf", "io_uring_setup", "kexec_load", "open_by_handle_at"} <= refused
    [by_flag] = [rule for rule in rules if "args" in rule]
    assert by_flag["names"] == ["clone", "unshare"]
    assert by_flag["args"][0]["valueTwo"] == 0x10000000
    assert not refused & {"clone", "execve", "ptrace", "openat"}


# --- containers


def _with_containers() -> dict[str, Any]:
    data = MountSpec(source="/data/shared", target="/var/lib/data", read_only=True)
    web = ProcessSpec(argv=("/bin/web",), env={}, name="web", root="/roots/web", mounts=(data,))
    db = ProcessSpec(argv=("/bin/db",), env={}, name="db", root="/roots/db")
    return _config(msgspec.structs.replace(SPEC, processes=(web, SPEC.processes[0], db)))


def test_each_container_s_root_is_seen_where_the_pilot_is_told() -> None:
    mounts = {mount["destination"]: mount for mount in _with_containers()["mounts"]}
    for name in ("web", "db"):
        root = container_root(name)
        assert (mounts[root]["type"], mounts[root]["source"]) == ("bind", f"/roots/{name}")
        assert mounts[f"{root}/proc"]["type"] == "proc"
        assert (mounts[f"{root}/dev"]["source"], mounts[f"{root}/dev"]["options"][0]) == ("/data/root/dev", "rbind")


def test_the_kernel_s_views_are_as_shut_in_a_container_as_in_its_machine() -> None:
    config = _with_containers()
    linux, plain = config["linux"], _config()["linux"]
    for kind in ("maskedPaths", "readonlyPaths"):
        for root in ("", container_root("web"), container_root("db")):
            assert {root + path for path in plain[kind]} <= set(linux[kind])
        assert len(linux[kind]) == 3 * len(plain[kind])
    mounts = {mount["destination"]: mount["options"] for mount in config["mounts"]}
    for place in ("/proc", "/sys", "/sys/fs/cgroup"):
        assert mounts[container_root("web") + place] == mounts[place]


def test_a_container_s_mounts_are_in_its_root_and_come_after_it() -> None:
    places = [mount["destination"] for mount in _with_containers()["mounts"]]
    root = container_root("web")
    assert places.index(root) < places.index(f"{root}/proc") < places.index(f"{root}/var/lib/data")
    [data] = [mount for mount in _with_containers()["mounts"] if mount["source"] == "/data/shared"]
    assert "ro" in data["options"] and "nodev" in data["options"]


def test_what_is_no_container_changes_nothing() -> None:
    plain = _config(msgspec.structs.replace(SPEC, processes=SPEC.processes * 3))
    assert plain == _config()


def _rules(name: str) -> list[dict[str, Any]]:
    return [rule for rule in seccomp_profile()["syscalls"] if name in rule["names"]]


@pytest.mark.parametrize("name", ["mount", "keyctl", "bpf", "userfaultfd", "io_uring_setup", "kexec_load", "setns"])
def test_calls_into_the_shared_kernel_are_refused(name: str) -> None:
    [rule] = _rules(name)
    assert (rule["action"], rule["errnoRet"]) == ("SCMP_ACT_ERRNO", 1)
    assert "args" not in rule


@pytest.mark.parametrize("name", ["clone", "unshare"])
def test_only_new_user_namespaces_are_refused_to_clone(name: str) -> None:
    [rule] = _rules(name)
    assert rule["args"] == [{"index": 0, "value": 0x10000000, "valueTwo": 0x10000000, "op": "SCMP_CMP_MASKED_EQ"}]


def test_clone3_is_said_to_be_missing_so_that_callers_fall_back() -> None:
    [rule] = _rules("clone3")
    assert rule["errnoRet"] == 38


@pytest.mark.parametrize("name", ["execve", "ptrace", "openat", "fork", "futex", "chroot", "personality"])
def test_what_programs_need_is_allowed(name: str) -> None:
    assert seccomp_profile()["defaultAction"] == "SCMP_ACT_ALLOW"
    assert _rules(name) == []


def test_32_bit_programs_are_filtered_too_and_unknown_machines_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert "SCMP_ARCH_X86" in seccomp_profile()["architectures"]
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "architectures" not in seccomp_profile()

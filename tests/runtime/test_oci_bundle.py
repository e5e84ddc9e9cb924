"""Facts about what isolates a container machine."""

import platform
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import container_root
from hawker.runtime.oci_bundle import PILOT_PATH, ContainerPlacement, cpu_shares, oci_config, seccomp_profile
from hawker.runtime.spec import InstanceLimits, InstanceSpec, MountSpec, ProcessSpec


def _rules(name: str) -> list[dict[str, Any]]:
    return [rule for rule in seccomp_profile()["syscalls"] if name in rule["names"]]


def _answers(name: str) -> list[tuple[str, int | None]]:
    return [(rule["action"], rule.get("errnoRet")) for rule in _rules(name) if "args" not in rule]


@pytest.mark.parametrize(
    "name",
    "mount keyctl bpf userfaultfd io_uring_setup kexec_load setns unshare syslog socketcall open_by_handle_at "
    "statmount pidfd_getfd mbind modify_ldt".split(),
)
def test_calls_into_the_shared_kernel_are_refused(name: str) -> None:
    assert _answers(name) == [("SCMP_ACT_ERRNO", 1)] and len(_rules(name)) == 1


@pytest.mark.parametrize(
    "name", ["execve", "ptrace", "openat", "fork", "futex", "chroot", "epoll_wait", "seccomp", "fchmodat2"]
)
def test_calls_programs_need_are_allowed(name: str) -> None:
    assert _answers(name) == [("SCMP_ACT_ALLOW", None)] and len(_rules(name)) == 1


@pytest.mark.parametrize("name", ["clone3", "memfd_secret", "uselib", "a_call_of_tomorrow"])
def test_a_call_not_named_is_said_to_be_missing_so_that_callers_fall_back(name: str) -> None:
    profile = seccomp_profile()
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    assert _rules(name) == []


def test_a_clone_without_a_new_namespace_is_allowed() -> None:
    [rule] = _rules("clone")
    [argument] = rule["args"]
    assert (argument["op"], argument["valueTwo"]) == ("SCMP_CMP_MASKED_EQ", 0)
    for new in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert argument["value"] & new
    assert not argument["value"] & 0x01FDFFFF, "threads and forks have flags as well"


def test_sockets_are_judged_by_family_and_protocol() -> None:
    allowed = [rule["args"] for rule in _rules("socket") if rule["action"] == "SCMP_ACT_ALLOW"]
    assert {arguments[0]["value"] for arguments in allowed} == {1, 2, 10, 16}
    assert all(argument["op"] == "SCMP_CMP_EQ" for arguments in allowed for argument in arguments)
    assert {arguments[1]["value"] for arguments in allowed if arguments[0]["value"] == 16} == {0, 4}


def test_the_call_that_hides_a_family_is_refused_before_any_rule_of_sockets() -> None:
    names = [name for rule in seccomp_profile()["syscalls"] for name in rule["names"]]
    assert names.index("socketcall") < names.index("socket")


def test_no_call_is_both_allowed_and_refused() -> None:
    plain = [name for rule in seccomp_profile()["syscalls"] if "args" not in rule for name in rule["names"]]
    assert len(plain) == len(set(plain))


def test_32_bit_programs_are_filtered_too_and_unknown_machines_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine, architecture, own in (("x86_64", "X86", "arch_prctl"), ("aarch64", "ARM", "cacheflush")):
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        assert f"SCMP_ARCH_{architecture}" in seccomp_profile()["architectures"] and _rules(own)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "architectures" not in seccomp_profile()


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


def test_a_machine_with_ids_of_its_own_has_them_in_a_user_namespace_and_on_its_volumes() -> None:
    volume = MountSpec(source="/data/volume", target="/data", mapped=True)
    shared = MountSpec(source="/data/shared", target="/shared")
    config = _config(msgspec.structs.replace(SPEC, first_id=1 << 30, mounts=(volume, shared)))
    ids = [{"containerID": 0, "hostID": 1 << 30, "size": 65_536}]
    assert {"type": "user"} in config["linux"]["namespaces"]
    assert config["linux"]["uidMappings"] == config["linux"]["gidMappings"] == ids
    mounts = {mount["destination"]: mount for mount in config["mounts"]}
    assert "idmap" in mounts["/data"]["options"] and mounts["/data"]["uidMappings"] == ids
    assert "idmap" not in mounts["/shared"]["options"] and "uidMappings" not in mounts["/shared"]
    assert "idmap" not in str(_config(msgspec.structs.replace(SPEC, mounts=(volume,))))


def test_only_a_user_namespace_has_the_name_of_the_capability_that_ping_s_file_asks_for() -> None:
    own = _config(msgspec.structs.replace(SPEC, first_id=1 << 30))["process"]["capabilities"]["bounding"]
    assert "CAP_NET_RAW" in own and "CAP_NET_RAW" not in _config()["process"]["capabilities"]["bounding"]


def test_kernel_surfaces_are_masked_or_read_only() -> None:
    linux = _config()["linux"]
    assert {"/proc/kcore", "/proc/keys", "/sys/firmware"} <= set(linux["maskedPaths"])
    assert {"/proc/sys", "/proc/sysrq-trigger"} <= set(linux["readonlyPaths"])
    sys_mounts = [mount for mount in _config()["mounts"] if mount["destination"].startswith("/sys")]
    assert sys_mounts
    assert all("ro" in mount["options"] for mount in sys_mounts)


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


def test_a_spec_that_is_no_container_changes_nothing() -> None:
    plain = _config(msgspec.structs.replace(SPEC, processes=SPEC.processes * 3))
    assert plain == _config()


def test_a_profile_of_apparmor_is_named_where_the_kernel_has_one() -> None:
    assert "apparmorProfile" not in _config()["process"]
    confined = _config(placement=replace(PLACEMENT, profile="hawker-ab12"))
    assert confined["process"]["apparmorProfile"] == "hawker-ab12"

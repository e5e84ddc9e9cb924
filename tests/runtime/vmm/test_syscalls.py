"""Facts about the list of a VMM's system calls; that all others are really refused is in tests/escape."""

from typing import Any

import pytest

from hawker.runtime.vmm.syscalls import vmm_profile

NEW_NAMESPACES = {"user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "mount": 0x00020000, "cgroup": 0x02000000}


def _rules(name: str) -> list[dict[str, Any]]:
    return [rule for rule in vmm_profile()["syscalls"] if name in rule["names"]]


def test_what_is_not_named_does_not_exist() -> None:
    profile = vmm_profile()
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    assert {rule["action"] for rule in profile["syscalls"]} == {"SCMP_ACT_ALLOW"}
    assert "architectures" not in profile


@pytest.mark.parametrize(
    "name",
    "bpf clone3 flock init_module io_uring_setup kexec_load keyctl mknod mknodat mount move_mount open_by_handle_at "
    "perf_event_open process_vm_readv ptrace setns umount2 unshare userfaultfd".split(),
)
def test_what_a_vmm_has_no_use_for_is_not_named(name: str) -> None:
    assert _rules(name) == []


@pytest.mark.parametrize("name", "execve futex ioctl mmap openat ppoll pread64 pwritev recvmsg sendmsg".split())
def test_what_every_vmm_does_is_allowed(name: str) -> None:
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

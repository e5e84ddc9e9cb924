"""Facts about the filter of system calls. What a kernel makes of it: tests/escape."""

import platform
from typing import Any

import pytest

from hawker.runtime.syscall_filter import seccomp_profile


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

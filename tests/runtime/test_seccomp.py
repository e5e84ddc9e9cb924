"""Facts about the refused system calls; that a container is really refused them is in test_container.py."""

import platform
from typing import Any

import pytest

from hawker.runtime.seccomp import seccomp_profile


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

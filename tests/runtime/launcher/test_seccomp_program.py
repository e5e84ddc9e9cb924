"""Facts about the filter of system calls: the program that libseccomp makes of a profile."""

import msgspec
import pytest

from hawker.runtime.launcher.seccomp_program import seccomp_program
from hawker.runtime.oci_bundle import seccomp_profile

_INSTRUCTION = 8
_RETURN = 0x06
_ALLOW = 0x7FFF0000


def _returns(program: bytes) -> set[int]:
    """All answers that a program can give."""
    codes = [program[at : at + _INSTRUCTION] for at in range(0, len(program), _INSTRUCTION)]
    return {int.from_bytes(code[4:], "little") for code in codes if code[0] == _RETURN}


def test_a_profile_becomes_one_program_with_its_answers() -> None:
    program = seccomp_program(msgspec.json.encode(seccomp_profile()))
    assert len(program) % _INSTRUCTION == 0
    assert _returns(program) >= {_ALLOW, 0x50001, 0x50026}


def test_a_call_that_the_library_does_not_know_is_left_to_the_default() -> None:
    rule = {"names": ["no_such_call"], "action": "SCMP_ACT_ALLOW"}
    profile = {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "syscalls": [rule]}
    assert _ALLOW not in _returns(seccomp_program(msgspec.json.encode(profile)))


def test_two_conditions_on_one_argument_are_two_rules() -> None:
    either = [{"index": 0, "value": family, "op": "SCMP_CMP_EQ"} for family in (1, 2)]
    rule = {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": either}
    profile = {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [rule]}
    program = seccomp_program(msgspec.json.encode(profile))
    assert _returns(program) >= {_ALLOW, 0x50001}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"defaultAction": "SCMP_ACT_NOTIFY"}, "SCMP_ACT_NOTIFY"),
        ({"architectures": ["SCMP_ARCH_VAX"]}, "SCMP_ARCH_VAX"),
        (
            {
                "syscalls": [
                    {
                        "names": ["socket"],
                        "action": "SCMP_ACT_ERRNO",
                        "args": [{"index": 9, "value": 1, "op": "SCMP_CMP_EQ"}],
                    }
                ]
            },
            "socket",
        ),
    ],
)
def test_a_rule_that_cannot_be_expressed_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        seccomp_program(msgspec.json.encode({"defaultAction": "SCMP_ACT_ALLOW", **change}))

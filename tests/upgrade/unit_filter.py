"""Runs a command under a filter as systemd makes it of a unit: `python unit_filter.py CALL,CALL FAMILY,FAMILY COMMAND
...` refuses the calls and real time with EPERM, and sockets of other families with EAFNOSUPPORT."""

import ctypes
import errno
import os
import sys

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EQUAL_UNDER_MASK, _ABOVE = 7, 6  # SCMP_CMP_*
_EQUAL = 4
_NO_NEW_PRIVILEGES = 3  # SCMP_FLTATR_CTL_NNP
_REAL_TIME = (1, 2, 6)  # SCHED_FIFO, SCHED_RR, SCHED_DEADLINE


class Comparison(ctypes.Structure):
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("how", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


def confine(calls: list[str], families: list[int]) -> None:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    filter_ = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ALLOW)))
    assert library.seccomp_attr_set(filter_, _NO_NEW_PRIVILEGES, 0) == 0
    for name in calls:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # else it is of another architecture
            added = library.seccomp_rule_add_array(filter_, ctypes.c_uint32(_ERRNO | errno.EPERM), number, 0, None)
            assert added == 0, name
    socket = library.seccomp_syscall_resolve_name(b"socket")
    for family in [*(each for each in range(max(families)) if each not in families), -max(families)]:
        how = Comparison(0, _EQUAL_UNDER_MASK, 0xFFFFFFFF, family) if family >= 0 else Comparison(0, _ABOVE, -family, 0)
        code = ctypes.c_uint32(_ERRNO | errno.EAFNOSUPPORT)
        assert library.seccomp_rule_add_array(filter_, code, socket, 1, ctypes.byref(how)) == 0, family
    schedule = library.seccomp_syscall_resolve_name(b"sched_setscheduler")
    for policy in _REAL_TIME:
        how, code = Comparison(1, _EQUAL, policy, 0), ctypes.c_uint32(_ERRNO | errno.EPERM)
        assert library.seccomp_rule_add_array(filter_, code, schedule, 1, ctypes.byref(how)) == 0, policy
    assert library.seccomp_load(filter_) == 0, "the filter is not loaded"


if __name__ == "__main__":
    _, names, numbers, *command = sys.argv
    confine(names.split(","), [int(each) for each in numbers.split(",")])
    os.execvp(command[0], command)

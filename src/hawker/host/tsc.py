"""How fast this cpu's time stamp counter runs.

An emulated guest is shown the host's counter and measures it while it boots, against a timer that is emulated too. On
a busy host that fails, and the guest's kernel then waits forever for its first tick; told the figure, it does not.
"""

import ctypes
import mmap
import platform

from hawker.clock import Clock

_READ = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
_SPAN_S = 0.02  # an error of one microsecond is then one of 50 parts in a million
_SPINS = 1 << 20  # for that long, at the most
_TRIES = 5


def tsc_khz(clock: Clock) -> int | None:
    """Takes 20 ms. None where there is no such counter, no program may be made in memory, or time is not real."""
    if platform.machine() != "x86_64":
        return None
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except PermissionError:
        return None
    code.write(_READ)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    began, first = _sample(clock, read)
    for _ in range(_SPINS):
        if clock.monotonic() - began >= _SPAN_S:
            break
    ended, last = _sample(clock, read)
    return round((last - first) / (ended - began) / 1000) if ended > began else None


def _sample(clock: Clock, read: "ctypes._CFunctionType") -> tuple[float, int]:
    """The counter, and when it was read: of several readings the one that nothing came between."""
    readings = []
    for _ in range(_TRIES):
        before, ticks = clock.monotonic(), read()
        after = clock.monotonic()
        readings.append((after - before, (before + after) / 2, ticks))
    _, at, ticks = min(readings)
    return at, ticks

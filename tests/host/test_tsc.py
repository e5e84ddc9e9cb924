"""The time stamp counter as the kernel has it, where it says so."""

import platform
import re
from pathlib import Path

import pytest

from hawker.clock import ManualClock, SystemClock
from hawker.host.facts import tsc_khz

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86 has this counter")


def test_counter_runs_at_the_frequency_of_some_cpu() -> None:
    khz = tsc_khz(SystemClock())
    assert khz is not None and 500_000 < khz < 10_000_000


def test_counter_is_measured_the_same_twice() -> None:
    first, second = tsc_khz(SystemClock()), tsc_khz(SystemClock())
    assert first is not None and second is not None
    assert abs(first - second) < first / 1000


def test_counter_is_near_what_a_virtual_host_says_of_its_cpu() -> None:
    """A guest's cpu has one frequency, that of its counter; elsewhere it varies."""
    about = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^cpu MHz\s*: (\S+)$", about, re.MULTILINE)
    if found is None or not re.search(r"^flags.*\bhypervisor\b", about, re.MULTILINE):
        pytest.skip("this host is no guest: its cpu's frequency varies")
    khz = tsc_khz(SystemClock())
    assert khz is not None and abs(khz - float(found[1]) * 1000) < khz / 100


def test_a_clock_that_stands_still_measures_nothing() -> None:
    assert tsc_khz(ManualClock()) is None

"""What the end of a VMM says about its machine."""

import pytest

from hawker.runtime.driver import Exit
from hawker.runtime.microvm_exit import BROKEN, VmmEvidence, is_final, judge, last_words
from hawker.runtime.vmm.contract import VmmEnd

KILLED = Exit(exit_code=137, signal=9, exited_at=50.0)
PANIC = b"[    1.5] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0\r\n[    1.6] Rebooting\r\n"


def ended(status: int, console: bytes = b"", oom_kills: int = 0) -> VmmEvidence:
    return VmmEvidence(end=VmmEnd(status=status, at=40.0, console=console), oom_kills=oom_kills)


def test_what_the_pilot_recorded_is_what_happened() -> None:
    recorded = Exit(exit_code=3, exited_at=30.0)
    assert judge(ended(-11, PANIC, oom_kills=1), recorded, KILLED) == recorded


@pytest.mark.parametrize(
    ("evidence", "code", "fault"),
    [
        (ended(0, PANIC), BROKEN, "kernel panic: Attempted to kill init! exitcode=0x0"),
        (
            ended(0, b"all is well\n"),
            BROKEN,
            "the guest turned itself off without a word; its kernel's last words: all",
        ),
        (ended(0), BROKEN, "its kernel's last words: (none)"),
        (ended(1, b"qemu: -m: no\n"), BROKEN, "the VMM ended with status 1: qemu: -m: no"),
        (ended(-11), 139, "the VMM was ended by SIGSEGV"),
        (ended(-64), 192, "the VMM was ended by"),
        (VmmEvidence(end=None, oom_kills=0), 137, "the VMM and its keeper were ended from outside"),
        (ended(-9, oom_kills=2), 137, "raise vmm_overhead_mib"),
    ],
)
def test_silence_has_a_fault(evidence: VmmEvidence, code: int, fault: str) -> None:
    exit = judge(evidence, None, KILLED)
    assert exit.exit_code == code and fault in exit.fault and not exit.reason
    assert exit.exited_at == (40.0 if evidence.end else 50.0)
    assert exit.oom_killed == (evidence.oom_kills > 0)


def test_what_would_end_in_the_same_way_again_is_final() -> None:
    assert is_final(ended(0)) and is_final(ended(-9, oom_kills=1))
    assert not is_final(ended(1)) and not is_final(ended(-9)) and not is_final(VmmEvidence(end=None, oom_kills=0))


def test_last_words_are_few_and_harmless() -> None:
    console = b"[    0.1] one\r\n\r\n[    0.2] two\n\x1b[2Jthree\xff\n" + b"four\n"
    assert last_words(console) == "two / [2Jthree\ufffd / four"
    assert len(last_words(b"x" * 10_000)) == 400
    assert last_words(b"\n \n") == "(none)"

"""What the end of a VMM means for its machine, and what its kernel said last. Pure.

The console is the guest's to write, so its words are cut and made harmless before anyone reads them.
"""

import re
import signal
from dataclasses import dataclass

import msgspec

from hawker.runtime.driver import Exit
from hawker.runtime.vmm.contract import VmmEnd

BROKEN = 125
"""The exit code of a machine that its platform, or its own kernel, could not run; as the pilot has it."""

_PANIC = re.compile(r"Kernel panic - not syncing: ([^\n]*)")
_STAMP = re.compile(r"^\[ *\d+\.\d+\] ", re.MULTILINE)
_LINES = 3
_WORDS_MAX = 400


@dataclass(frozen=True, slots=True)
class VmmEvidence:
    """What is left of a VMM. `end` is None when its keeper was ended before it could say; `oom_kills` is of its control
    group."""

    end: VmmEnd | None
    oom_kills: int


def judge(evidence: VmmEvidence, recorded: Exit | None, killed: Exit) -> Exit:
    """`recorded` is the pilot's own word; what it recorded happened, whatever became of the VMM then. `killed` is the
    exit of what was ended without a word."""
    if recorded is not None:
        return recorded
    end = evidence.end
    at = end.at if end is not None else killed.exited_at
    if evidence.oom_kills > 0:
        fault = "the VMM needed more memory than it may have beside its guest's: raise vmm_overhead_mib"
        return msgspec.structs.replace(killed, exited_at=at, oom_killed=True, fault=fault)
    if end is None:
        return msgspec.structs.replace(killed, fault="the VMM and its keeper were ended from outside")
    if end.status < 0:
        code = -end.status
        return Exit(exit_code=128 + code, signal=code, exited_at=at, fault=f"the VMM was ended by {_name_of(code)}")
    return Exit(exit_code=BROKEN, exited_at=at, fault=_fault(end))


def is_final(evidence: VmmEvidence) -> bool:
    """Whether a machine whose pilot never took its spec was ended by its guest, or for its size. A VMM that
    fails says why to whoever launches it, and may be launched again."""
    return evidence.end is not None and (evidence.end.status == 0 or evidence.oom_kills > 0)


def _fault(end: VmmEnd) -> str:
    text = _text(end.console)
    panics = _PANIC.findall(text)
    if panics:
        return f"kernel panic: {panics[-1].strip()[:_WORDS_MAX]}"
    if end.status > 0:
        return f"the VMM ended with status {end.status}: {last_words(end.console)}"
    return f"the guest turned itself off without a word; its kernel's last words: {last_words(end.console)}"


def last_words(console: bytes) -> str:
    """The last lines that say anything."""
    lines = [line.strip() for line in _text(console).splitlines() if line.strip()]
    return " / ".join(lines[-_LINES:])[-_WORDS_MAX:] or "(none)"


def _text(console: bytes) -> str:
    """Without time stamps and whatever a terminal would obey."""
    text = console.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return _STAMP.sub("", "".join(char if char == "\n" or char.isprintable() else " " for char in text))


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

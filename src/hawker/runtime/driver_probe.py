"""What this host can run machines with: a verdict for every driver, and the choice of `--driver auto`.

`auto` takes the best that really works: one that boots a kernel with KVM, else containers, else processes. Emulation is
no choice of its own: a machine would be ten times slower, which somebody has to want.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from hawker.errors import CannotStart
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    from hawker.runtime.kernel.kvm_trial import KvmTrial

AUTO = "auto"
EMULATED = "emulates, which is slow, so auto never takes it"


class DriverVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A driver as this host can use it. `usable`: machines can be run with it here. `by_itself`: `auto` may take it."""

    name: str
    """The driver's name, as `--driver` takes it."""
    usable: bool
    reason: str
    """The reason of the verdict, for people: what is missing, or what was seen of the driver."""
    by_itself: bool
    chosen: bool = False
    """Whether this node runs machines with this driver."""


class Candidate(ValueObject, frozen=True):
    """A driver that is to be judged. `check` is `Driver.check`; `trial` is of its VMM with KVM; `emulates`: it also
    goes without KVM. `works` is said of it when nothing is missing, and there is no trial."""

    name: str
    """The driver's name, as `--driver` takes it."""
    check: Callable[[], Awaitable[None]]
    works: str = ""
    trial: "Callable[[], Awaitable[KvmTrial]] | None" = None
    emulates: bool = False


async def judge(candidates: Sequence[Candidate]) -> tuple[DriverVerdict, ...]:
    """A verdict for each candidate, in the order given, the best first."""
    return tuple([await _verdict(candidate) for candidate in candidates])


async def _verdict(candidate: Candidate) -> DriverVerdict:
    name = candidate.name
    try:
        await candidate.check()
        if candidate.trial is None:
            return DriverVerdict(name=name, usable=True, reason=candidate.works, by_itself=True)
        trial = await candidate.trial()
    except (CannotStart, OSError) as error:
        return DriverVerdict(name=name, usable=False, reason=str(error), by_itself=False)
    if trial.boots:
        return DriverVerdict(name=name, usable=True, reason=trial.reason, by_itself=True)
    reason = f"{EMULATED} ({trial.reason})" if candidate.emulates else trial.reason
    return DriverVerdict(name=name, usable=candidate.emulates, reason=reason, by_itself=False)


def choose(verdicts: Sequence[DriverVerdict], bound: str | None) -> tuple[DriverVerdict, ...]:
    """The verdicts, with one of them chosen. `bound` is the driver whose machines are here: it stays the node's for as
    long as they are. Raises `CannotStart` when that driver cannot run them, and when no driver can run machines."""
    if bound is not None:
        return _bound(verdicts, bound)
    best = next((verdict.name for verdict in verdicts if verdict.by_itself), None)
    if best is None:
        reasons = "; ".join(f"{verdict.name}: {verdict.reason}" for verdict in verdicts)
        raise CannotStart(f"no driver can run machines here: {reasons}")
    return marked(verdicts, best)


def _bound(verdicts: Sequence[DriverVerdict], bound: str) -> tuple[DriverVerdict, ...]:
    verdict = next((each for each in verdicts if each.name == bound), None)
    if verdict is None or not verdict.usable:
        reason = verdict.reason if verdict is not None else "it is not known any more"
        raise CannotStart(
            f"the machines here are of the driver {bound}, which cannot run them now: {reason}; mend that, or choose"
            " another with --driver, which loses them"
        )
    return marked(verdicts, bound)


def marked(verdicts: Sequence[DriverVerdict], name: str) -> tuple[DriverVerdict, ...]:
    """The verdicts, with the driver of that name chosen and no other."""
    return tuple(msgspec.structs.replace(verdict, chosen=verdict.name == name) for verdict in verdicts)

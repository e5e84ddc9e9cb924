"""What is said of a run: one line, and of a run in which something was found the story of how it came to it."""

from collections.abc import Iterator

from hawker.sim.harness.shrink import Played
from hawker.sim.harness.trace import Speaker, TraceLine
from hawker.sim.worker.plan import MINUTES
from hawker.sim.worker.simulation import WorkerOutcome

_WORDS_MAX = 160


def summary(outcome: WorkerOutcome) -> str:
    """One line. Times are virtual."""
    minutes, seconds = divmod(int(outcome.ended_at), 60)
    verdict = f"{len(outcome.found)} findings: {outcome.found[0].invariant.value}" if outcome.found else "nothing found"
    return (
        f"seed {outcome.plan.seed}: {outcome.operations} operations, {outcome.crashes} crashes, "
        f"{outcome.faults} faults, {minutes}m{seconds:02d}s, digest {outcome.digest}, {verdict}"
    )


def story(outcome: Played, of: int, command: str) -> Iterator[str]:
    """`of` how many deeds this is left; `command` repeats it."""
    count = len(outcome.plan.deeds)
    yield f"The shortest story of seed {outcome.plan.seed}, {count} of its {of} deeds:"
    for line in outcome.lines:
        if line.kind is Speaker.FOUND:
            break
        if line.kind is not Speaker.COMMIT:
            yield f"  {_told(line)}"
    for violation in outcome.found:
        yield f"  FOUND: {violation}"
    yield f"Again: {command}"


def repeat(outcome: WorkerOutcome, minutes: float, plant: str | None, *, whole: bool) -> str:
    """The command that plays this run once more."""
    words = ["hawker sim", f"--seed {outcome.plan.seed}"]
    words += [f"--minutes {minutes:g}"] if minutes != MINUTES else []
    words += [f"--plant {plant}"] if plant else []
    words += [] if whole else ["--only " + ",".join(str(deed.number) for deed in outcome.plan.deeds)]
    return " ".join(words)


def _told(line: TraceLine) -> str:
    minutes, seconds = divmod(line.at, 60)
    who = "" if line.kind is Speaker.CLIENT else f"{line.kind.value}: "
    text = f"{int(minutes):02d}:{seconds:06.3f}  {who}{line.text}"
    return text if len(text) <= _WORDS_MAX else f"{text[: _WORDS_MAX - 3]}..."

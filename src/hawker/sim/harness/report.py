"""What is said of a run in which something was found: the story of how it came to it."""

from collections.abc import Iterator
from typing import Any

from hawker.sim.harness.plan import RunOutcome
from hawker.sim.harness.trace import Speaker, TraceLine

_WORDS_MAX = 160


def story(outcome: RunOutcome[Any], of: int, command: str) -> Iterator[str]:
    """`of` how many operations this is left; `command` repeats it."""
    count = len(outcome.plan.operations)
    yield f"The shortest story of seed {outcome.plan.seed}, {count} of its {of} planned operations:"
    for line in outcome.lines:
        if line.kind is Speaker.FOUND:
            break
        if line.kind is not Speaker.COMMIT:
            yield f"  {_told(line)}"
    for violation in outcome.found:
        yield f"  FOUND: {violation}"
    yield f"Again: {command}"


def only_option(outcome: RunOutcome[Any]) -> str:
    """The option that plays these operations of the seed's plan and no others."""
    return "--only " + ",".join(str(operation.number) for operation in outcome.plan.operations)


def _told(line: TraceLine) -> str:
    minutes, seconds = divmod(line.at, 60)
    who = "" if line.kind is Speaker.CLIENT else f"{line.kind.value}: "
    text = f"{int(minutes):02d}:{seconds:06.3f}  {who}{line.text}"
    return text if len(text) <= _WORDS_MAX else f"{text[: _WORDS_MAX - 3]}..."

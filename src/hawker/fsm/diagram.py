"""A flow's table as a page for people: a Mermaid state diagram, then the steps with their limits. Text only."""

from collections.abc import Iterator
from inspect import getdoc
from itertools import pairwise
from typing import Any

from hawker.fsm.contract import Flow, Step


def page(flow: Flow[Any]) -> str:
    """The Markdown of `docs/generated/flows/NAME.md`."""
    lines = [
        f"# Flow `{flow.name}`",
        "",
        "Drawn from its table; do not edit.",
        "",
        "```mermaid",
        *_diagram(flow),
        "```",
        "",
    ]
    deadline = "" if flow.deadline_s is None else f" It is given up after {flow.deadline_s:g} s."
    lines += [f"Input: `{flow.input.__name__}`.{deadline}", "", *_table(flow)]
    return "\n".join(lines) + "\n"


def _diagram(flow: Flow[Any]) -> Iterator[str]:
    yield "stateDiagram-v2"
    names = ["[*]", *(step.name for step in flow.steps), "done"]
    for here, there in pairwise(names):
        yield f"    {here} --> {there}"
    yield "    done --> [*]"
    way_back = [(index, f"undo_{step.name}") for index, step in enumerate(flow.steps) if step.undo is not None]
    for index, step in enumerate(flow.steps):
        before = [name for place, name in way_back if place <= index]
        yield f"    {step.name} --> {before[-1] if before else 'failed'}: fails"
    undos = [*(name for _, name in reversed(way_back)), "failed"]
    for here, there in pairwise(undos):
        yield f"    {here} --> {there}"
    yield "    failed --> [*]"


def _table(flow: Flow[Any]) -> Iterator[str]:
    yield "| Step | Makes it so that | Timeout | Attempts | Wait between | Queue | Durable | Undo |"
    yield "|---|---|---|---|---|---|---|---|"
    for step in flow.steps:
        yield f"| {' | '.join(_cells(step))} |"


def _cells(step: Step) -> Iterator[str]:
    yield f"`{step.name}`"
    yield _first_line(step.do)
    yield f"{step.timeout_s:g} s"
    yield str(step.backoff.attempts)
    yield f"{step.backoff.first_s:g} to {step.backoff.cap_s:g} s"
    yield "" if step.queue is None else f"`{step.queue}`"
    yield "yes" if step.durable else ""
    yield "" if step.undo is None else _first_line(step.undo) or "yes"


def _first_line(call: object) -> str:
    return (getdoc(call) or "").partition("\n")[0].replace("|", "\\|")

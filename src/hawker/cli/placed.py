"""Orders of several machines, and bids as text."""

from collections.abc import Iterator

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import Machine, MachineParams
from hawker.api.contract.market import BidPart, BidShown, PlaceAnswer
from hawker.cli import waiting
from hawker.cli.exits import ExitStatus, say_error
from hawker.cli.options import gathered
from hawker.cli.ordering import ClientOrder, place_many
from hawker.cli.output import Form, as_json, table
from hawker.clock import Clock
from hawker.value_object import ValueObject


class Count(ValueObject, frozen=True, kw_only=True):
    """`count` None is one machine, ordered as any client does."""

    count: int | None
    all_or_nothing: bool


count_options = gathered(
    Count,
    "count",
    (
        click.option(
            "--count",
            metavar="N",
            type=click.IntRange(min=1),
            help="The number of machines; as many as possible are filled.",
        ),
        click.option("--all-or-nothing", is_flag=True, help="With --count: fill all machines or none."),
    ),
)


async def filled(caller: Caller, order: ClientOrder, count: Count, within_s: float | None, clock: Clock) -> PlaceAnswer:
    """The answer, once those that were filled have started; None does not wait."""
    answer = await place_many(caller, order, count=count.count or 1, all_or_nothing=count.all_or_nothing)
    if within_s is not None:
        for machine in answer.machines:
            params = MachineParams(app_name=order.app_name, machine_id=machine.id)
            await waiting.started(caller, params, machine.version, clock, within_s)
    return answer


def show_placed(answer: PlaceAnswer, form: Form) -> int:
    """The exit status: that of a refusal when not all were filled."""
    click.echo(as_json(answer) if form is Form.JSON else "\n".join(map(_id, answer.machines)))
    return said_of_the_rest(answer)


def said_of_the_rest(answer: PlaceAnswer) -> int:
    if answer.refusal is None:
        return ExitStatus.OK
    say_error(f"{answer.filled} of {answer.asked} filled: {answer.refusal.error}")
    return ExitStatus.NO_ROOM


def bids_table(answer: PlaceAnswer) -> str:
    """Every bid, its parts below it, and why it lost."""
    rows = [row for bid in answer.bids for row in _rows(bid)]
    return table(("NODE", "REGION", "VERDICT", "SCORE", "FITS", "WHY"), rows, prose=("WHY",))


def _rows(bid: BidShown) -> Iterator[tuple[object, ...]]:
    score = None if bid.score is None else f"{bid.score:.3f}"
    verdict = bid.verdict.value.replace("_", " ")
    yield bid.node, bid.region, verdict, score, bid.fits if bid.score is not None else None, bid.why
    for part in bid.parts:
        yield f"  {part.name}", "", "", f"{part.points:.3f}", "", _told(part)


def _told(part: BidPart) -> str:
    match part.name:
        case "image":
            value = f"{part.value:.1f} MiB missing"
        case "spread":
            value = f"{part.value:.0f} of the app here"
        case _:
            value = f"{part.value:.1%} used afterwards"
    return f"{value}, desirability {part.utility:.2f}, weight {part.weight:g}"


def _id(machine: Machine) -> str:
    return machine.id

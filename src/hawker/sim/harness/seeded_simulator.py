"""What `hawker sim moves` and `hawker sim deploys` share: seed after seed until something is found, then its story."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import click

from hawker.cli.exits import ExitStatus
from hawker.cli.output import line_of_json
from hawker.sim.commands.worker import Numbers, Seeds, without_logs
from hawker.sim.harness.plan import RunOutcome, only_option, story
from hawker.sim.harness.planted_bug import PlantedBug, kit_of
from hawker.value_object import ValueObject

K = TypeVar("K")
P = TypeVar("P")
O = TypeVar("O", bound=RunOutcome[Any])  # noqa: E741 - an outcome

SEEDS = "1-20"
TRIES = 200


class SeededSimulator(ValueObject, Generic[K, P, O], frozen=True, kw_only=True):
    """`name` is its command's; `counts` are what an outcome is told by."""

    name: str
    plants: tuple[PlantedBug[K], ...]
    sound: K
    draw: Callable[[int], Any]
    play: Callable[[Any, K], O]
    shrink: Callable[[O, K, int], O]
    counts: Callable[[O], dict[str, int]]

    def run(
        self,
        seeds: Iterable[int],
        plant: str | None,
        plants: bool,
        only: frozenset[int] | None,
        tries: int,
        trace: bool,
        json: bool,
    ) -> int:
        """The exit status."""
        if plants:
            click.echo("\n".join(f"{each.name:20} {each.what}" for each in self.plants))
            return ExitStatus.OK
        kit = kit_of(self.plants, plant, self.sound)
        with without_logs():
            for seed in seeds:
                plan = self.draw(seed)
                outcome = self.play(plan if only is None else plan.only(only), kit)
                self._tell(outcome, trace=trace, json=json)
                if outcome.found:
                    if tries and not trace and not json:
                        self._story(outcome, kit, tries, f" --plant {plant}" if plant else "")
                    return ExitStatus.FAILED
        return ExitStatus.OK

    def _tell(self, outcome: O, *, trace: bool, json: bool) -> None:
        seed, counts = outcome.plan.seed, self.counts(outcome)
        if json:
            found = [str(each) for each in outcome.found]
            click.echo(line_of_json({"seed": seed, "digest": outcome.digest, **counts, "found": found}))
            return
        for line in outcome.lines if trace else ():
            click.echo(str(line))
        said = f"{len(outcome.found)} found" if outcome.found else "nothing found"
        what = ", ".join(f"{count} {name}" for name, count in counts.items())
        click.echo(f"seed {seed:6}  {outcome.digest}  {what}: {said}")
        for each in () if trace else outcome.found:
            click.echo(f"  {each}")

    def _story(self, outcome: O, kit: K, tries: int, planted: str) -> None:
        seed, whole = outcome.plan.seed, len(outcome.plan.operations)
        shortest = self.shrink(outcome, kit, tries)
        again = f"hawker sim {self.name} --seeds {seed}-{seed}{planted} {only_option(shortest)}"
        for line in story(shortest, whole, again):
            click.echo(line)


def seeded_options(plants: Iterable[PlantedBug[Any]]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The options that `SeededSimulator.run` takes."""
    names = [plant.name for plant in plants]
    options = (
        click.option("--seeds", type=Seeds(), default=SEEDS, show_default=True,
                     help="The number of seeds, or a range."),
        click.option("--plant", type=click.Choice(names), metavar="NAME", help="Plant this bug in the nodes."),
        click.option("--plants", is_flag=True, help="List the bugs that can be planted."),
        click.option("--only", type=Numbers(), help="Play only these operations, as a trace numbers them."),
        click.option("--tries", type=click.IntRange(0, 10_000), default=TRIES, show_default=True,
                     help="Runs to spend on the shortest story of a finding; 0: no story."),
        click.option("--trace", is_flag=True, help="Print the whole trace, and no story."),
        click.option("--json", "json", is_flag=True, help="Print one object a line for each seed."),
    )  # fmt: skip

    def add(command: Callable[..., int]) -> Callable[..., int]:
        for option in reversed(options):
            command = option(command)
        return command

    return add

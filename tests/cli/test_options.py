from dataclasses import dataclass

import click
from click.testing import CliRunner

from hawker.cli.options import PlacementOptions, app_option, gathered, placement_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    a: str | None
    b: int


def test_options_are_gathered_into_one_value_beside_the_others() -> None:
    seen: list[object] = []

    @click.command()
    @gathered(Pair, "pair", (click.option("--a"), click.option("--b", type=int, default=7)))
    @click.option("--c")
    def command(pair: Pair, c: str | None) -> None:
        seen.extend([pair, c])

    assert CliRunner().invoke(command, ["--a", "x", "--c", "y"]).exit_code == 0
    assert seen == [Pair(a="x", b=7), "y"]


def test_gathered_options_keep_their_order_in_the_help() -> None:
    @click.command()
    @placement_options
    def command(placement: PlacementOptions) -> None: ...

    text = CliRunner().invoke(command, ["--help"]).output
    places = [text.index(flag) for flag in ("--app", "--name", "--region", "--order-id")]
    assert places == sorted(places)


def test_the_app_may_come_from_the_environment() -> None:
    @click.command()
    @app_option
    def command(app: str | None) -> None:
        click.echo(app)

    runner = CliRunner(env={"HAWKER_APP": "shop"})
    assert runner.invoke(command, []).output == "shop\n"
    assert runner.invoke(command, ["-a", "other"]).output == "other\n"

import click
import pytest
from click.testing import CliRunner

from hawker.cli.options import WordsOfAnother, app_option, gathered
from hawker.value_object import ValueObject


class Pair(ValueObject, frozen=True, kw_only=True):
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


def test_the_app_may_come_from_the_environment() -> None:
    @click.command()
    @app_option
    def command(app: str | None) -> None:
        click.echo(app)

    runner = CliRunner(env={"HAWKER_APP": "shop"})
    assert runner.invoke(command, []).output == "shop\n"
    assert runner.invoke(command, ["-a", "other"]).output == "other\n"


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ("-v IMG sh -c x -v", ("IMG", ("sh", "-c", "x", "-v"), True, None)),
        ("IMG -v --name n sh -c", ("IMG", ("sh", "-c"), True, "n")),
        ("IMG -- -v", ("IMG", ("-v",), False, None)),
        ("IMG sh -- -v", ("IMG", ("sh", "--", "-v"), False, None)),
        ("--name n -- IMG -v", ("IMG", ("-v",), False, "n")),
        ("IMG --name n", ("IMG", (), False, "n")),
    ],
)
def test_words_from_the_second_argument_on_are_another_program_s(words: str, seen: object) -> None:
    found: list[object] = []

    @click.command(cls=WordsOfAnother)
    @click.argument("image", required=False)
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    @click.option("-v", "flag", is_flag=True)
    @click.option("--name")
    def command(image: str, rest: tuple[str, ...], flag: bool, name: str | None) -> None:
        found.append((image, rest, flag, name))

    result = CliRunner().invoke(command, words.split())
    assert result.exit_code == 0, result.output
    assert found == [seen]

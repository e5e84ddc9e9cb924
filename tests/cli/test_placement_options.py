import click
from click.testing import CliRunner

from hawker.cli.placement_options import PlacementOptions, placement_options


def test_gathered_options_keep_their_order_in_the_help() -> None:
    @click.command()
    @placement_options
    def command(placement: PlacementOptions) -> None: ...

    text = CliRunner().invoke(command, ["--help"]).output
    places = [text.index(flag) for flag in ("--app", "--name", "--region", "--order-id")]
    assert places == sorted(places)

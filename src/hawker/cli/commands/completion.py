"""`hawker completion`: the code that makes a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")

_HELP = """Print the code that completes commands in your shell.

\b
Examples:
  hawker completion bash > /etc/bash_completion.d/hawker
  hawker completion zsh > ~/.zfunc/_hawker
  hawker completion fish > ~/.config/fish/completions/hawker.fish
"""


@click.command("completion", help=_HELP)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    kind = get_completion_class(shell)
    assert kind is not None, f"click knows {shell}"
    click.echo(kind(ctx.find_root().command, {}, "hawker", "_HAWKER_COMPLETE").source())

"""Options and arguments that several commands share, and how many options become one value. Light, since a list of
machines imports it."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeAlias

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from hawker.cli.lazy import found
from hawker.cli.notation import Written, seconds

Command: TypeAlias = Callable[..., Any]

DEFAULT_APP = "default"
START_WITHIN_S = 300.0


def gathered(
    kind: type[Any], name: str, options: Iterable[Callable[[Command], Command]]
) -> Callable[[Command], Command]:
    """A decorator that adds `options` and passes them on as one `kind`, a value object with a field for each."""

    def decorate(command: Command) -> Command:
        names = kind.__struct_fields__

        @wraps(command)
        def call(*args: Any, **values: Any) -> Any:
            whole = kind(**{each: values.pop(each) for each in names})
            return command(*args, **{name: whole}, **values)

        decorated: Command = call
        for option in reversed(list(options)):
            decorated = option(decorated)
        return decorated

    return decorate


class WordsOfAnother(click.Command):
    """The first argument is this command's; from the second on all words are another program's, also those that look
    like options. `--` says so too, and is needed where there is no first argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._marked(ctx, args))

    def _marked(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = self._next_argument(ctx, args, 0)
        second = None if first is None else self._next_argument(ctx, args, first + 1)
        return args if second is None else [*args[:second], "--", *args[second:]]

    def _next_argument(self, ctx: click.Context, args: list[str], start: int) -> int | None:
        """Where it is, past options and their values; None when there is none, or `--` comes before."""
        options = [each for each in self.params if isinstance(each, click.Option)]
        parser = click.Command(self.name, params=list[click.Parameter](options)).make_parser(ctx)
        parser.allow_interspersed_args = False
        _, rest, _ = parser.parse_args(args[start:])
        at = len(args) - len(rest)
        return at if rest and not (at > start and args[at - 1] == "--") else None


def completed(what: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What a shell offers: a function of `hawker.cli.completions`, by name: a client of the API is imported when a
    shell asks."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        items: list[CompletionItem] = found("hawker.cli.completions", what)(ctx, param, incomplete)
        return items

    return complete


app_option = click.option(
    "-a", "--app", metavar="NAME", envvar="HAWKER_APP", show_envvar=True, shell_complete=completed("apps"),
    help="The app; without it, all apps are searched, and an order goes to `default`.",
)  # fmt: skip
"""Passed on as `app`; None means all apps, or for an order the default one."""


def _app_here(ctx: click.Context, param: click.Parameter, app: str | None) -> str:
    """What is said after a subcommand, or before it, wins over a variable. By name: what reads a file is imported where
    no app was named."""
    group = ctx.parent
    if group is not None and _is_said(group, "app") and not _is_said(ctx, "app"):
        before: str = group.params["app"]
        return before
    return app or found("hawker.cli.fly_file", "app_here")() or DEFAULT_APP


def _is_said(ctx: click.Context, name: str) -> bool:
    """On the command line itself."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def check_before_subcommand(ctx: click.Context) -> None:
    """For a group that is a command of its own: of its options only the app is for its subcommands, too. Raises
    `UsageError`."""
    for param in ctx.command.params:
        if param.name != "app" and param.name is not None and _is_said(ctx, param.name):
            sub = ctx.invoked_subcommand
            raise click.UsageError(f"{param.opts[-1]} is of `{ctx.command_path}` alone: options of `{sub}` follow it")


one_app_option = click.option(
    "-a", "--app", metavar="NAME", envvar="HAWKER_APP", show_envvar=True, shell_complete=completed("apps"),
    callback=_app_here, help=f"The app; that of the fly.toml here, else `{DEFAULT_APP}`, unless told.",
)  # fmt: skip
"""Passed on as `app`, for commands about an app itself and not about a machine of it."""


def _complete_machine(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """By name: a client of the API is imported when a shell asks."""
    items: list[CompletionItem] = found("hawker.cli.machines", "complete_machine")(ctx, param, incomplete)
    return items


machine_argument = click.argument("machine", metavar="MACHINE", shell_complete=_complete_machine)
"""An id, the unique beginning of one, or a name."""

machines_argument = click.argument(
    "machines", metavar="MACHINE...", nargs=-1, required=True, shell_complete=_complete_machine
)

command_argument = click.argument("arguments", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)

within_option = click.option(
    "--timeout",
    "within_s",
    type=Written(seconds, "duration"),
    default=START_WITHIN_S,
    metavar="TIME",
    help="How long to wait, such as 30 or 1m30s; default 5 minutes.",
)
wait_option = click.option("--wait/--no-wait", default=True, help="Wait for the result, or not.")

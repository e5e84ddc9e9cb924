"""`hawker join`: makes this host one of a cluster, and becomes `hawker up`."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from hawker import up
from hawker.api.failure import Unreachable
from hawker.cli.access import Access
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.output import note
from hawker.cli.target import given_token
from hawker.cli.token_input import HOW, ask_token, read_token
from hawker.log import Secret
from hawker.up.commands.up import settings_of, settings_options

_HELP = """Join the cluster of the node at ADDRESS, and run a node on this host.

ADDRESS is a URL, or HOST or HOST:PORT of any living node. An invitation of `hawker fleet invite` lets this host join;
so does the root token of the cluster's nodes, which is in DATA_DIR/token there. Neither is sent: the answer is sealed
for who has it. Without --token-file and HAWKER_TOKEN, `join` asks for it. Without --advertise, this host advertises the
address from which it contacts the other node. `join` takes every option of `hawker up`; the next time, `hawker up` is
enough.

\b
Examples:
  hawker join 10.0.0.1 --token-file invite
  ssh 10.0.0.1 hawker fleet invite | hawker join 10.0.0.1 --token-file -
  hawker join 10.0.0.1 --token-file invite --no-start --region mad
"""

_MAIN = "import sys; from hawker.cli.main import main; sys.exit(main())"


@click.pass_context
def _join(
    ctx: click.Context,
    /,
    address: str,
    token: str | None,
    token_file: str | None,
    start: bool,
    config: Path | None,
    **flags: object,
) -> int:
    access = ctx.find_object(Access) or Access()
    if token is not None:
        raise click.UsageError(f"every user of this host can read a token in the command line: {HOW}")
    read = read_token(token_file)
    given = Secret(read) if read else given_token(access, os.environ)
    settings = settings_of(config, flags)
    if given is None and (asked := ask_token("Invitation or root token")):
        given = Secret(asked)
    if given is None:
        raise click.UsageError(
            "give an invitation of `hawker fleet invite` with --token-file FILE, or - for standard input"
        )
    try:
        cluster = up.join(settings, address, given)
    except Unreachable as error:
        text = f"{error}; it answers other hosts where `hawker up --listen ADDRESS:4280` says, else only its own"
        raise Failure(text, ExitStatus.UNAVAILABLE) from error
    note(f"in cluster {cluster.id}; others reach this node at {cluster.advertise}, port {cluster.peer_port}")
    if start:
        _become_up(config, flags)
    return 0


def _become_up(config: Path | None, flags: Mapping[str, object]) -> None:
    """Execute `hawker up` in the place of this process: a daemon keeps its command line and its environment for as long
    as it lives, so nothing of how it joined stays there."""
    entry, words = Path(sys.argv[0]), up_words(config, flags)
    environ = {name: value for name, value in os.environ.items() if name != "HAWKER_TOKEN"}
    program = [str(entry)] if entry.name == "hawker" and entry.is_file() else ["-c", _MAIN]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-P", *program, "up", *words], environ)


def up_words(config: Path | None, flags: Mapping[str, object]) -> list[str]:
    """The options of `join`, as `up` takes them."""
    options = {option.name: option for option in settings_options()}
    words = [] if config is None else ["--config", str(config)]
    for name, value in flags.items():
        option = options[name]
        match value:
            case None | ():
                continue
            case bool():
                words.append(option.opts[0] if value else option.secondary_opts[0])
            case tuple():
                words += [word for each in value for word in (option.opts[0], str(each))]
            case _:
                words += [option.opts[0], str(value)]
    return words


command = click.Command(
    "join",
    callback=_join,
    help=_HELP,
    params=[
        click.Argument(["address"], metavar="ADDRESS"),
        click.Option(["--token-file"], metavar="FILE", help="A file with the invitation or root token; - for stdin."),
        click.Option(["--token"], hidden=True),
        click.Option(
            ["--start/--no-start"],
            default=True,
            help="Then run the node as `hawker up` does, or only write the cluster's data.",
        ),
        *settings_options(),
    ],
)

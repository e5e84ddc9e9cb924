"""`hawker join`: makes this host one of a cluster, and goes on as `hawker up`."""

import os
from pathlib import Path

import click

from hawker import up
from hawker.cli.access import Access
from hawker.cli.exits import Failure
from hawker.cli.output import note
from hawker.log import Secret
from hawker.up.commands.up import settings_of, settings_options

_HELP = """Join the cluster of the node at ADDRESS, and run a node on this host.

ADDRESS is a URL, or HOST or HOST:PORT of any living node. The token is that node's root token, in DATA_DIR/token there;
it becomes this node's token too. Without --advertise, this host advertises the address from which it contacts the other
node. `join` takes every option of `hawker up`; the next time, `hawker up` is enough.

\b
Examples:
  hawker join 10.0.0.1 --token "$TOKEN"
  hawker join http://10.0.0.1:4280 --token "$TOKEN" --region mad --label disk=ssd
  hawker join 10.0.0.1 --token "$TOKEN" --no-start && systemctl start hawker
"""


@click.pass_context
def _join(
    ctx: click.Context, /, address: str, token: str | None, start: bool, config: Path | None, **flags: object
) -> int:
    access = ctx.find_object(Access) or Access()
    given = Secret(token) if token else access.token or _from_environment()
    if given is None:
        raise Failure("give the root token of the other node with --token: it is in DATA_DIR/token there")
    settings = settings_of(config, flags)
    cluster = up.join(settings, address, given)
    note(f"in cluster {cluster.id}; others reach this node at {cluster.advertise}, port {cluster.peer_port}")
    return up.run(settings) if start else 0


def _from_environment() -> Secret | None:
    text = os.environ.get("HAWKER_TOKEN")
    return Secret(text) if text else None


command = click.Command(
    "join",
    callback=_join,
    help=_HELP,
    params=[
        click.Argument(["address"], metavar="ADDRESS"),
        click.Option(["--token"], metavar="TOKEN", help="The other node's root token. [env var: HAWKER_TOKEN]"),
        click.Option(
            ["--start/--no-start"],
            default=True,
            help="Then run the node as `hawker up` does, or only write the cluster's data.",
        ),
        *settings_options(),
    ],
)

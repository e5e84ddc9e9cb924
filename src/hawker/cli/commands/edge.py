"""`hawker edge announce`: the addresses that this host serves, for the program that tells routers of them.

The warden of a host's edge is below the same name, hidden: `hawker edge --data-dir DIR`, as daemons of every version
start it, is `hawker edge serve --data-dir DIR`.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from ipaddress import ip_address

import click

from hawker.api.contract.port import LIST_EDGE_ADDRESSES, EdgeAddress
from hawker.cli.connect import talk
from hawker.cli.lazy import CommandModule, LazyGroup
from hawker.cli.notation import OneOf
from hawker.cli.output import Form, output_option, show, table


class Router(StrEnum):
    BIRD = "bird"
    FRR = "frr"


@click.command("announce")
@click.option("--router", type=OneOf(Router, tuple(Router)), help="Print configuration for this program instead.")
@output_option
@click.pass_context
def announce(ctx: click.Context, router: Router | None, form: Form) -> None:
    """Print which addresses routers should send to this host, and which not.

    They are those that an app of this node's region has alone (`hawker ips allocate -a APP v4`). UP says that the edge
    of this host listens there. An address is down where it is not one of the host's, and all are while the node drains.
    An address that is not in the list is nobody's: announce it no longer.

    With --router the addresses that are up are printed as static routes of BIRD 2 or FRR, which your BGP or OSPF passes
    on to your routers. Hawker starts neither program and changes none of their files. Run the command every few
    seconds, and load what it prints when it has changed. When it fails, keep what you have: the node's daemon is away,
    or has not met its edge yet, and the edge goes on without it.

    \b
    Examples:
      hawker edge announce
      hawker edge announce --router bird > /etc/bird/hawker.conf
      hawker edge announce -o json
    """
    found = talk(ctx, lambda caller: caller.call(LIST_EDGE_ADDRESSES))
    if router is None:
        show(found, form, addresses_table)
    else:
        printed = {Router.BIRD: bird, Router.FRR: frr}[router](found)
        click.echo(printed, nl=bool(printed))


def addresses_table(found: Sequence[EdgeAddress]) -> str:
    if not found:
        return "no app with machines here has an address alone: see `hawker ips allocate`"
    return table(("ADDRESS", "APP", "UP", "WHY NOT"), [(each.ip, each.app, _yes(each.up), each.why) for each in found])


def _yes(up: bool) -> str:
    return "yes" if up else "no"


def bird(found: Iterable[EdgeAddress]) -> str:
    """A protocol for each family, without a route where nothing is up: what was announced is withdrawn."""
    up = [each.ip for each in found if each.up]
    return "\n".join(
        "\n".join(
            (
                f"protocol static hawker{version} {{",
                f"  ipv{version};",
                *(f"  route {each}/{bits} blackhole;" for each in up if ip_address(each).version == version),
                "}",
            )
        )
        for version, bits in ((4, 32), (6, 128))
    )


def frr(found: Iterable[EdgeAddress]) -> str:
    """The whole list, to be compared with what FRR has by its frr-reload.py."""
    up = [ip_address(each.ip) for each in found if each.up]
    return "\n".join(
        f"{'ip' if each.version == 4 else 'ipv6'} route {each}/{each.max_prefixlen} blackhole" for each in up
    )


class _Edge(LazyGroup):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What begins with an option is for the warden."""
        is_old = bool(args) and args[0].startswith("-") and args[0] not in ctx.help_option_names
        return super().parse_args(ctx, ["serve", *args] if is_old else args)


TABLE = {
    "announce": CommandModule(__name__, "Print the addresses that routers should send here.", attribute="announce"),
    "serve": CommandModule("hawker.edge.commands", "What `up` starts.", hidden=True),
}

command = _Edge("edge", TABLE, help="What the edge of this host serves, for routers in front.", no_args_is_help=True)

"""`hawker ips`: the addresses of an app."""

import click

from hawker.api.contract.app import (
    ASSIGN_IP,
    LIST_IPS,
    RELEASE_IP,
    AppParams,
    AssignIpRequest,
    IpAssignment,
    IpAssignments,
    IpParams,
)
from hawker.cli.connect import talk
from hawker.cli.options import completed, one_app_option
from hawker.cli.output import Form, local, output_option, show, show_change, table

TYPES = ("v4", "v6", "shared_v4", "private_v6")


@click.group("ips", no_args_is_help=True)
def command() -> None:
    """List, allocate and release an app's addresses.

    \b
    v4, v6      from the node's pools, to one app alone
    shared_v4   the node's own, which apps share
    private_v6  in a private network

    \b
    Examples:
      hawker ips allocate -a shop shared_v4
      hawker ips list -a shop
      hawker ips release -a shop 203.0.113.5
    """


@command.command("list")
@one_app_option
@output_option
@click.pass_context
def list_ips(ctx: click.Context, app: str, form: Form) -> None:
    """List an app's addresses."""
    show(talk(ctx, lambda caller: caller.call(LIST_IPS, params=AppParams(app_name=app))), form, ips_table)


def ips_table(answer: IpAssignments) -> str:
    rows = [(ip.ip, _kind(ip), ip.region, ip.service_name or "-", local(ip.created_at)) for ip in answer.ips]
    return table(("ADDRESS", "TYPE", "REGION", "SERVICE", "GIVEN"), rows)


def _kind(ip: IpAssignment) -> str:
    if ip.network is not None:
        return f"{ip.type} ({ip.network.name})"
    return f"{ip.type} (shared)" if ip.shared and not ip.type.startswith("shared") else ip.type


@command.command("allocate")
@one_app_option
@click.argument("kind", metavar="TYPE", type=click.Choice(TYPES))
@click.option(
    "--region", metavar="CODE", shell_complete=completed("regions"), help="The region of the address; default global."
)
@click.option("--network", metavar="NAME", help="For a private_v6: the private network; default the app's own.")
@click.option("--service", "service_name", metavar="NAME", help="The service of the address.")
@output_option
@click.pass_context
def allocate_ip(
    ctx: click.Context,
    app: str,
    kind: str,
    region: str | None,
    network: str | None,
    service_name: str | None,
    form: Form,
) -> None:
    """Allocate an address to an app, and print it."""
    body = AssignIpRequest(type=kind, region=region, network=network, service_name=service_name)
    answer = talk(ctx, lambda caller: caller.call(ASSIGN_IP, params=AppParams(app_name=app), body=body))
    show(answer, form, lambda made: made.ip)


@command.command("release")
@one_app_option
@click.argument("address")
@output_option
@click.pass_context
def release_ip(ctx: click.Context, app: str, address: str, form: Form) -> None:
    """Release an address of an app."""
    talk(ctx, lambda caller: caller.call(RELEASE_IP, params=IpParams(app_name=app, ip=address)))
    show_change(form, None, app=app, address=address)

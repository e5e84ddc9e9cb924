"""`hawker fleet`: who may join the cluster."""

import click

from hawker.api.contract.cluster import (
    CREATE_INVITE,
    LIST_INVITES,
    REVOKE_INVITE,
    Invite,
    InviteList,
    InviteParams,
    InviteRequest,
)
from hawker.cli.connect import talk
from hawker.cli.output import Form, local, note, output_option, show, table
from hawker.config.duration import parse_duration


@click.group("fleet", no_args_is_help=True)
def command() -> None:
    """Invite hosts into the cluster.

    An invitation lets hosts join and does nothing else. It ends when it was used, and after its time. The node that
    made it must be up when a host joins by it; the host may ask any node of the cluster.

    \b
    Examples:
      hawker fleet invite > invite            copy it to the new host, and there:
      hawker join 10.0.0.1 --token-file invite
      hawker fleet invite --expires 24h --uses 5
      hawker fleet invites
    """


@command.command("invite")
@click.option("--expires", metavar="DURATION", default="1h", show_default=True, help="How long it is good: 1m to 7d.")
@click.option("--uses", type=int, metavar="N", default=1, show_default=True, help="How many hosts may join by it.")
@output_option
@click.pass_context
def create_invite(ctx: click.Context, expires: str, uses: int, form: Form) -> None:
    """Make an invitation, and print it. It takes the root token."""
    try:
        request = InviteRequest(expires_s=int(parse_duration(expires)), uses=uses)
    except ValueError as error:
        raise click.UsageError(f"--expires: {error}") from error
    made = talk(ctx, lambda caller: caller.call(CREATE_INVITE, body=request))
    show(made, form, lambda invite: invite.token or "")
    if form is Form.TABLE:
        hosts = f"{made.uses} host{'s' * (made.uses != 1)}"
        note(f"invitation {made.id} lets {hosts} join until {local(made.expires_at)}; use it with")
        note("  hawker join ADDRESS --token-file FILE")


@command.command("invites")
@output_option
@click.pass_context
def list_invites(ctx: click.Context, form: Form) -> None:
    """List this node's invitations, and who joined by them."""
    show(talk(ctx, lambda caller: caller.call(LIST_INVITES)), form, invites_table)


@command.command("uninvite")
@click.argument("invite", metavar="ID")
@output_option
@click.pass_context
def revoke_invite(ctx: click.Context, invite: str, form: Form) -> None:
    """Revoke an invitation. Hosts that have joined by it stay."""
    params = InviteParams(invite_id=invite)
    show(talk(ctx, lambda caller: caller.call(REVOKE_INVITE, params=params)), form, lambda ended: ended.id)


def invites_table(answer: InviteList) -> str:
    rows = ((i.id, i.state, local(i.expires_at), f"{len(i.joined)}/{i.uses}", _hosts(i), i.by) for i in answer.invites)
    return table(("INVITATION", "STATE", "EXPIRES", "USED", "HOSTS", "BY"), rows)


def _hosts(invite: Invite) -> str:
    return ", ".join(each.source or each.node for each in invite.joined) or "-"

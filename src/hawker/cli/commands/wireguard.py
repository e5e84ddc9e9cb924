"""`hawker wireguard`: people's own computers in private networks."""

import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hawker.api.contract.org import OrgParams
from hawker.api.contract.private_network import (
    DELETE_PEER,
    LIST_PEERS,
    PUT_PEER,
    WireguardPeer,
    WireguardPeerList,
    WireguardPeerParams,
    WireguardPeerRequest,
)
from hawker.cli.connect import talk
from hawker.cli.output import Form, local, output_option, show, show_change, table
from hawker.deferred import deferred

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import x25519
else:
    x25519 = deferred("cryptography.hazmat.primitives.asymmetric.x25519")

_org = click.argument("org")
_name = click.argument("name")


@click.group("wireguard", no_args_is_help=True)
def command() -> None:
    """Let your own computer into a private network, through a node that is a gateway (hawker up --wireguard-listen).

    \b
    Examples:
      hawker wireguard create personal laptop hawker.conf
      sudo wg-quick up ./hawker.conf
      hawker wireguard list personal
      hawker wireguard remove personal laptop
    """


@command.command("create")
@_org
@_name
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--network", metavar="NAME", help="One of the organization's private networks; default: its own first.")
@output_option
@click.pass_context
def create(ctx: click.Context, org: str, name: str, file: Path | None, network: str | None, form: Form) -> None:
    """Make a peer, and write its wg-quick configuration.

    The configuration goes to FILE, or to standard output.

    The pair of keys is made here; only the public one goes to the node. A name that is there gets the new key.
    """
    if file is None and form is Form.JSON:
        raise click.UsageError("-o json needs FILE: the private key is written there, and is in no answer")
    pair = x25519.X25519PrivateKey.generate()
    private = base64.b64encode(pair.private_bytes_raw()).decode()
    public = base64.b64encode(pair.public_key().public_bytes_raw()).decode()
    if file is not None and file.exists():
        raise click.UsageError(f"{file} is there already: name another file, or remove it")
    body = WireguardPeerRequest(pubkey=public, network=network)
    params = WireguardPeerParams(org_slug=org, peer=name)
    made = talk(ctx, lambda caller: caller.call(PUT_PEER, params=params, body=body))
    text = quick_file(made, private)
    if file is None:
        sys.stdout.write(text)
        return
    _write(file, text)
    show(
        made,
        form,
        lambda answer: (
            f"{answer.name} is {answer.peerip}: sudo wg-quick up {file if file.is_absolute() else f'./{file}'}"
        ),
    )


def quick_file(peer: WireguardPeer, private: str) -> str:
    """What wg-quick(8) reads."""
    return (
        f"# {peer.name} of {peer.org}\n[Interface]\nPrivateKey = {private}\nAddress = {peer.peerip}/120\n"
        f"DNS = {peer.dns}\n\n[Peer]\nPublicKey = {peer.pubkey}\nAllowedIPs = {peer.allowed_ips}\n"
        f"Endpoint = {peer.endpoint}\nPersistentKeepalive = 15\n"
    )


@command.command("list")
@_org
@output_option
@click.pass_context
def list_peers(ctx: click.Context, org: str, form: Form) -> None:
    """List an organization's peers at the node that is asked."""
    show(talk(ctx, lambda caller: caller.call(LIST_PEERS, params=OrgParams(org_slug=org))), form, peers_table)


def peers_table(answer: WireguardPeerList) -> str:
    rows = [(each.name, each.network, each.peerip, local(each.created_at)) for each in answer.peers]
    return table(("NAME", "NETWORK", "ADDRESS", "CREATED"), rows)


@command.command("remove")
@_org
@_name
@output_option
@click.pass_context
def remove(ctx: click.Context, org: str, name: str, form: Form) -> None:
    """Let a peer in no more. Its connections end at once."""
    params = WireguardPeerParams(org_slug=org, peer=name)
    talk(ctx, lambda caller: caller.call(DELETE_PEER, params=params))
    show_change(form, None, org=org, name=name)


def _write(file: Path, text: str) -> None:
    """For its owner alone. Raises `UsageError`."""
    try:
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(text)
    except OSError as error:
        raise click.UsageError(f"cannot write {file}: {error.strerror}") from error

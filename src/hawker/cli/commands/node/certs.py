"""`hawker node certs`: certificates of the platform's own names, which are no app's."""

import click

from hawker.api.contract.certificate import (
    DELETE_PLATFORM_CERTIFICATE,
    IMPORT_PLATFORM_CERTIFICATE,
    LIST_PLATFORM_CERTIFICATES,
    ImportCertificateRequest,
    PlatformCertificate,
    PlatformCertificateList,
    PlatformCertificateParams,
)
from hawker.cli.commands.certs import chain_option, key_option, read_pem
from hawker.cli.connect import talk
from hawker.cli.output import Form, local, output_option, show, show_change, table

_HELP = """The certificates of the platform's own names: `*.DOMAIN`, which edges show for the names of apps below the
node's --domain, and its --api-hostname. A node with an --acme-directory orders them as far as it can; others are given
theirs here. In a fleet it is enough to import one at one node: all edges show it.

\b
Examples:
  hawker node certs list
  hawker node certs import api.example.com --chain chain.pem --key key.pem
"""


@click.group("certs", help=_HELP, no_args_is_help=True)
def command() -> None:
    pass


@command.command("list")
@output_option
@click.pass_context
def list_certificates(ctx: click.Context, form: Form) -> None:
    """List the platform's own names, and what edges show for them."""
    show(talk(ctx, lambda caller: caller.call(LIST_PLATFORM_CERTIFICATES)), form, certificates_table)


def certificates_table(answer: PlatformCertificateList) -> str:
    headings = ("HOSTNAME", "STATUS", "SOURCE", "ISSUER", "EXPIRES", "ERROR")
    return table(headings, map(_row, answer.certificates), prose=("ERROR",))


def _row(each: PlatformCertificate) -> tuple[str, ...]:
    expires = "" if each.expires_at is None else local(each.expires_at)
    return each.hostname, each.status, each.source, each.issuer, expires, each.error


@command.command("import")
@click.argument("hostname")
@chain_option
@key_option
@output_option
@click.pass_context
def import_certificate(ctx: click.Context, hostname: str, chain: str, key: str, form: Form) -> None:
    """Import a certificate for one of the platform's own names.

    It takes the place of the one before, and clients see it at once. It is not renewed before it has expired: import
    the next one in time; `hawker node doctor` says when.
    """
    body = ImportCertificateRequest(hostname=hostname, fullchain=read_pem(chain), private_key=read_pem(key))
    made = talk(ctx, lambda caller: caller.call(IMPORT_PLATFORM_CERTIFICATE, body=body))
    show(made, form, lambda each: certificates_table(PlatformCertificateList(certificates=(each,))))


@command.command("remove")
@click.argument("hostname")
@output_option
@click.pass_context
def remove_certificate(ctx: click.Context, hostname: str, form: Form) -> None:
    """Remove a certificate that was imported at this node."""
    params = PlatformCertificateParams(hostname=hostname)
    talk(ctx, lambda caller: caller.call(DELETE_PLATFORM_CERTIFICATE, params=params))
    show_change(form, None, hostname=hostname)

"""`hawker certs`: the host names of an app, and their certificates."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from hawker.api.contract.app import AppParams
from hawker.api.contract.certificate import (
    CHECK_CERTIFICATE,
    DELETE_CERTIFICATE,
    GET_CERTIFICATE,
    IMPORT_CERTIFICATE,
    LIST_CERTIFICATES,
    ORDER_CERTIFICATE,
    CertificateDetail,
    CertificateList,
    CertificateParams,
    ImportCertificateRequest,
    ListCertificatesQuery,
    OrderCertificateRequest,
)
from hawker.cli.connect import talk
from hawker.cli.options import one_app_option
from hawker.cli.output import Form, local, output_option, show, show_change, table

_MOST_BYTES = 64 * 1024
_hostname = click.argument("hostname")
chain_option = click.option(
    "--chain", required=True, metavar="FILE", help="PEM: the host's certificate, then who issued it."
)
key_option = click.option(
    "--key", required=True, metavar="FILE", help="PEM: its private key, without a passphrase; - for stdin."
)


@click.group("certs", no_args_is_help=True)
def command() -> None:
    """Import, list, show, check and remove certificates of an app's host names.

    \b
    Examples:
      hawker certs import -a shop example.com --chain chain.pem --key key.pem
      hawker certs check -a shop example.com
      hawker certs remove -a shop example.com
    """


@command.command("list")
@one_app_option
@click.option("--filter", "part", metavar="TEXT", help="Only host names with this in them.")
@output_option
@click.pass_context
def list_certificates(ctx: click.Context, app: str, part: str | None, form: Form) -> None:
    """List an app's certificates."""
    query = ListCertificatesQuery(filter=part, limit=500)
    show(
        talk(ctx, lambda caller: caller.call(LIST_CERTIFICATES, params=AppParams(app_name=app), query=query)),
        form,
        certificates_table,
    )


def certificates_table(answer: CertificateList) -> str:
    rows = [
        (each.hostname, each.status, "yes" if each.configured else "not seen", local(each.updated_at))
        for each in answer.certificates
    ]
    return table(("HOSTNAME", "STATUS", "POINTS HERE", "IMPORTED"), rows)


@command.command("import")
@one_app_option
@_hostname
@chain_option
@key_option
@output_option
@click.pass_context
def import_certificate(ctx: click.Context, app: str, hostname: str, chain: str, key: str, form: Form) -> None:
    """Import a certificate for a host name.

    The name may be `*.example.com`. The certificate takes the place of the one before. Clients see it at once, at each
    port of the app on its node whose handlers include tls.
    """
    body = ImportCertificateRequest(hostname=hostname, fullchain=read_pem(chain), private_key=read_pem(key))
    show(
        talk(ctx, lambda caller: caller.call(IMPORT_CERTIFICATE, params=AppParams(app_name=app), body=body)),
        form,
        detail_text,
    )


@command.command("add")
@one_app_option
@_hostname
@output_option
@click.pass_context
def order_certificate(ctx: click.Context, app: str, hostname: str, form: Form) -> None:
    """Order a certificate for a host name.

    It is renewed before it expires. The name must lead to the app's node: to port 443 with TLS, or to port 80 with
    plain HTTP. `hawker certs show` says how far it is. Only nodes with an --acme-directory order.
    """
    body = OrderCertificateRequest(hostname=hostname)
    show(
        talk(ctx, lambda caller: caller.call(ORDER_CERTIFICATE, params=AppParams(app_name=app), body=body)),
        form,
        detail_text,
    )


@command.command("show")
@one_app_option
@_hostname
@output_option
@click.pass_context
def show_certificate(ctx: click.Context, app: str, hostname: str, form: Form) -> None:
    """Show a host name's certificate."""
    params = CertificateParams(app_name=app, hostname=hostname)
    show(talk(ctx, lambda caller: caller.call(GET_CERTIFICATE, params=params)), form, detail_text)


@command.command("check")
@one_app_option
@_hostname
@output_option
@click.pass_context
def check_certificate(ctx: click.Context, app: str, hostname: str, form: Form) -> None:
    """Look up where the host name leads now, and show what is missing."""
    params = CertificateParams(app_name=app, hostname=hostname)
    show(talk(ctx, lambda caller: caller.call(CHECK_CERTIFICATE, params=params)), form, detail_text)


@command.command("remove")
@one_app_option
@_hostname
@output_option
@click.pass_context
def remove_certificate(ctx: click.Context, app: str, hostname: str, form: Form) -> None:
    """Remove a host name with its certificate. Clients see it no more from then on."""
    params = CertificateParams(app_name=app, hostname=hostname)
    talk(ctx, lambda caller: caller.call(DELETE_CERTIFICATE, params=params))
    show_change(form, None, app=app, hostname=hostname)


def detail_text(answer: CertificateDetail) -> str:
    return "\n".join(f"{name:<12}{value}" for name, value in _lines(answer))


def _lines(answer: CertificateDetail) -> Iterator[tuple[str, str]]:
    yield "hostname", answer.hostname
    yield "status", answer.status
    for entry in answer.certificates:
        yield "issuer", entry.issuer
        yield "expires", local(entry.expires_at)
        yield "key", ", ".join(each.type for each in entry.issued)
    wanted = (*answer.dns_requirements.a, *answer.dns_requirements.aaaa)
    yield "point it to", ", ".join(wanted) or "an address of the app's host"
    delegation = answer.dns_requirements.acme_challenge
    if delegation.name and answer.hostname.startswith("*"):
        yield "delegate", f"{delegation.name} CNAME {delegation.target}"
    if answer.dns_records is not None:
        yield "leads to", ", ".join(answer.dns_records.resolved_addresses) or "nowhere"
    if answer.rate_limited_until is not None:
        yield "waits until", local(answer.rate_limited_until)
    for error in answer.validation_errors:
        yield "wrong", f"{error.message}: {error.remediation}"


def read_pem(file: str) -> str:
    """A file of PEM, or standard input for `-`. Raises `UsageError`."""
    try:
        text = sys.stdin.read(_MOST_BYTES + 1) if file == "-" else _start_of(Path(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise click.UsageError(f"cannot read {file}: {reason}") from error
    if len(text) > _MOST_BYTES:
        raise click.UsageError(f"{file} is larger than {_MOST_BYTES} bytes")
    return text


def _start_of(file: Path) -> str:
    with file.open() as opened:
        return opened.read(_MOST_BYTES + 1)

"""`hawker route`: where a request would go."""

from collections.abc import Iterator

import click

from hawker.api.contract.app import AppParams
from hawker.api.contract.port import EXPLAIN_ROUTE, ExplainQuery, RouteExplanation
from hawker.cli.connect import talk
from hawker.cli.options import one_app_option
from hawker.cli.output import Form, output_option, show, table


@click.group("route", no_args_is_help=True)
def command() -> None:
    """Say where a request for an app would go, and why.

    \b
    Examples:
      hawker route explain -a shop https://shop.example.com
      hawker route explain -a db tcp://localhost:5432
    """


@command.command("explain")
@one_app_option
@click.argument("url")
@output_option
@click.pass_context
def explain_route(ctx: click.Context, app: str, url: str, form: Form) -> None:
    """Say which machine a request for URL gets, and why.

    The edge of the app's host is asked, for the listener, the certificate and the machine. Nothing is sent to a
    machine. URL is http://, https://, tcp://, tls:// or udp://.
    """
    params, query = AppParams(app_name=app), ExplainQuery(url=url)
    show(talk(ctx, lambda caller: caller.call(EXPLAIN_ROUTE, params=params, query=query)), form, explanation)


def explanation(answer: RouteExplanation) -> str:
    asked = f"asked in region {answer.region}, at node {answer.node}\n" if answer.node else ""
    if not answer.listeners:
        return asked + "no app of this host publishes the port: see `hawker machine run -p`"
    return asked + "\n\n".join(_listeners(answer))


def _listeners(answer: RouteExplanation) -> Iterator[str]:
    for each in answer.listeners:
        shown = f", certificate {each.certificate}" if each.certificate else ""
        head = f"{each.address} port {each.port} speaks {each.speaks}{shown}\n{each.outcome}"
        rows = [
            (
                "->" if found.chosen else "",
                found.machine,
                str(found.internal_port),
                f"{found.in_flight}/{found.soft_limit}/{found.hard_limit or '-'}",
                found.stands,
            )
            for found in each.candidates
        ]
        yield head + ("\n" + table(("", "MACHINE", "PORT", "IN/SOFT/HARD", "STANDS"), rows) if rows else "")

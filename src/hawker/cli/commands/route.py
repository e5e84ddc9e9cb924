"""`hawker route`: where a request would go."""

from collections.abc import Iterator

import click

from hawker.api.contract.app import AppParams
from hawker.api.contract.port import EXPLAIN_ROUTE, ExplainQuery, RouteExplanation
from hawker.cli import notation
from hawker.cli.connect import talk
from hawker.cli.notation import Written
from hawker.cli.options import one_app_option
from hawker.cli.output import Form, output_option, show, table


@click.group("route", no_args_is_help=True)
def command() -> None:
    """Say where a request for an app would go, and why.

    \b
    Examples:
      hawker route explain -a shop https://shop.example.com
      hawker route explain -a shop -X POST https://shop.example.com/orders
      hawker route explain -a shop -H 'fly-prefer-region: ams' https://a.test
      hawker route explain -a db tcp://localhost:5432
    """


@command.command("explain")
@one_app_option
@click.argument("url")
@click.option("-X", "--method", metavar="METHOD", default="", help="Of the request (GET).")
@click.option("-H", "--header", metavar="NAME: VALUE", multiple=True, type=Written(notation.header, "header"),
              help="A field of the request, such as `fly-prefer-region: ams`. May be given again.")  # fmt: skip
@click.option("--from", "source", metavar="ADDRESS", default="", help="The client's IP address.")
@click.option("--replay", metavar="ORDER", default="", help="As if the machine answered with this `fly-replay`.")
@output_option
@click.pass_context
def explain_route(
    ctx: click.Context,
    app: str,
    url: str,
    method: str,
    header: tuple[tuple[str, str], ...],
    source: str,
    replay: str,
    form: Form,
) -> None:
    """Say which machine gets a request for URL, and why.

    The edge of the app's host is asked, for the listener, the certificate and the machine. Nothing is sent to a
    machine. URL is http://, https://, tcp://, tls:// or udp://. What the options say of the request is explained, too.
    """
    params = AppParams(app_name=app)
    query = ExplainQuery(url=url, method=method, header=dict(header), source=source, replay=replay)
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
        head += "".join(f"\n- {note}" for note in each.notes)
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

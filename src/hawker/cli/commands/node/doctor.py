"""`hawker node doctor`: what is wrong between the node's store and its host, and, when asked, its repair."""

import click

from hawker.api.caller import Caller
from hawker.api.contract.doctor import LIST_FINDINGS, REPAIR_FINDINGS, FindingInfo, FindingList, RepairRequest
from hawker.cli.connect import talk
from hawker.cli.exits import ExitStatus
from hawker.cli.output import Form, output_option, show, table

_HELP = """Compare the node's store with its host, and report what is wrong. Without --repair nothing is changed.

The node repairs most findings by itself within a minute; --repair does so now, and also repairs what waits for an
operator. A repair never ends a healthy machine. Exit status: 0 when nothing is wrong (any more), 1 otherwise.

\b
Examples:
  hawker node doctor
  hawker node doctor --repair
"""


@click.command("doctor", help=_HELP)
@click.option("--repair", is_flag=True, help="Repair the findings.")
@click.option("--end-foreign", is_flag=True, help="With --repair: also end the machines of another store.")
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@output_option
@click.pass_context
def command(ctx: click.Context, repair: bool, end_foreign: bool, as_json: bool, form: Form) -> int:
    if end_foreign and not repair:
        raise click.UsageError("--end-foreign needs --repair")
    answer = talk(ctx, lambda caller: _ask(caller, RepairRequest(end_foreign=end_foreign or None) if repair else None))
    show(answer, Form.JSON if as_json else form, findings_table)
    return ExitStatus.FAILED if any(finding.outcome != "mended" for finding in answer.findings) else ExitStatus.OK


async def _ask(caller: Caller, request: RepairRequest | None) -> FindingList:
    if request is None:
        return await caller.call(LIST_FINDINGS)
    return await caller.call(REPAIR_FINDINGS, body=request)


def findings_table(answer: FindingList) -> str:
    if not answer.findings:
        return "nothing is wrong"
    rows = ((each.kind, each.about, each.detail, _repair(each)) for each in answer.findings)
    return table(("FINDING", "ABOUT", "WHAT IS WRONG", "REPAIR"), rows)


def _repair(finding: FindingInfo) -> str:
    """What it would do, or what has become of it."""
    match finding.outcome:
        case None:
            return finding.repair
        case "mended":
            return f"done: {finding.repair}"
        case "failed":
            return f"failed: {finding.error}"
        case _:
            return f"left alone: {finding.repair}"

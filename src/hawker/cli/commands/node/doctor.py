"""`hawker node doctor`: what is wrong between the node's store and its host, and, when asked, its repair."""

import os
from pathlib import Path

import click

from hawker.api.caller import Caller
from hawker.api.contract.node import LIST_FINDINGS, REPAIR_FINDINGS, FindingInfo, FindingList, RepairRequest
from hawker.cli.connect import talk
from hawker.cli.exits import ExitStatus
from hawker.cli.host_security import HostSecurity, Weakness
from hawker.cli.output import Form, output_option, show, table
from hawker.place import default_data_dir

_HELP = """Compare the node's store with its host, and report what is wrong. Without --repair nothing is changed.

The node repairs most findings by itself within a minute; --repair does so now, and also repairs what waits for an
operator. A repair never ends a healthy machine. Exit status: 0 when nothing is wrong (any more), 1 otherwise.

\b
Examples:
  hawker node doctor
  hawker node doctor --repair
  hawker node doctor --security
"""


@click.command("doctor", help=_HELP)
@click.option("--repair", is_flag=True, help="Repair the findings.")
@click.option("--end-foreign", is_flag=True, help="With --repair: also end the machines of another store.")
@click.option("--security", is_flag=True, help="Instead report what of this host makes its machines less safe.")
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@output_option
@click.pass_context
def command(ctx: click.Context, repair: bool, end_foreign: bool, security: bool, as_json: bool, form: Form) -> int:
    form = Form.JSON if as_json else form
    if security:
        return _security(form)
    if end_foreign and not repair:
        raise click.UsageError("--end-foreign needs --repair")
    answer = talk(ctx, lambda caller: _ask(caller, RepairRequest(end_foreign=end_foreign or None) if repair else None))
    show(answer, form, findings_table)
    return ExitStatus.FAILED if any(finding.outcome != "mended" for finding in answer.findings) else ExitStatus.OK


def _security(form: Form) -> int:
    """Of the host that the command runs on; no node is asked."""
    found = HostSecurity(Path(os.environ.get("HAWKER_DATA_DIR") or default_data_dir())).weaknesses()
    show(found, form, weaknesses_table)
    return ExitStatus.FAILED if found else ExitStatus.OK


def weaknesses_table(found: list[Weakness]) -> str:
    if not found:
        return "nothing was found"
    headings = ("ABOUT", "WHAT IS WEAK", "WHAT TO DO")
    return table(headings, ((each.about, each.detail, each.advice) for each in found), prose=headings[1:])


async def _ask(caller: Caller, request: RepairRequest | None) -> FindingList:
    if request is None:
        return await caller.call(LIST_FINDINGS)
    return await caller.call(REPAIR_FINDINGS, body=request)


def findings_table(answer: FindingList) -> str:
    if not answer.findings:
        return "nothing is wrong"
    rows = ((each.kind, each.about, each.detail, _repair(each)) for each in answer.findings)
    return table(("FINDING", "ABOUT", "WHAT IS WRONG", "REPAIR"), rows, prose=("WHAT IS WRONG", "REPAIR"))


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

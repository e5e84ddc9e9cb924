"""`hawker quotas`: what organizations and apps may have."""

import click
import msgspec

from hawker.api.contract.org import (
    CLEAR_QUOTA,
    LIST_QUOTAS,
    PUT_QUOTA,
    Quota,
    QuotaLimits,
    QuotaList,
    QuotaParams,
)
from hawker.cli.connect import talk
from hawker.cli.output import Form, output_option, show, table

_RESOURCES = QuotaLimits.__struct_fields__


@click.group("quotas", no_args_is_help=True)
def command() -> None:
    """Show, set and clear what organizations and apps may have of the fleet.

    SUBJECT is org/NAME or app/NAME, or 'org/*' for every organization without a quota of its own but `personal`, which
    is the operator's. Machines count also while they are stopped.

    \b
    Examples:
      hawker quotas set org/acme --machines 50 --cpus 100 --memory-mb 204800
      hawker quotas set 'org/*' --machines 10 --addresses 1
      hawker quotas show
      hawker quotas clear org/acme
    """


@command.command("show")
@output_option
@click.pass_context
def show_quotas(ctx: click.Context, form: Form) -> None:
    """Show every quota, and what is used of it. USED/LIMIT, in the whole fleet."""
    show(talk(ctx, lambda caller: caller.call(LIST_QUOTAS)), form, quotas_table)


def _limit_options(function: click.decorators.FC) -> click.decorators.FC:
    for name in reversed(_RESOURCES):
        flag = f"--{name.replace('_', '-')}"
        what = f"MiB of {name.removesuffix('_mb')}" if name.endswith("_mb") else name
        function = click.option(flag, name, type=click.IntRange(min=0), metavar="N", help=f"At most N {what}.")(
            function
        )
    return function


@command.command("set")
@click.argument("subject", metavar="SUBJECT")
@_limit_options
@output_option
@click.pass_context
def set_quota(ctx: click.Context, /, subject: str, form: Form, **limits: int | None) -> None:
    """Replace the quota of SUBJECT. What is not named is not limited."""
    if all(limit is None for limit in limits.values()):
        raise click.UsageError("name at least one limit, or use `hawker quotas clear`")
    params, body = _params(subject), QuotaLimits(**limits)
    made = talk(ctx, lambda caller: caller.call(PUT_QUOTA, params=params, body=body))
    show(made, form, lambda quota: quotas_table(QuotaList(quotas=(quota,))))


@command.command("clear")
@click.argument("subject", metavar="SUBJECT")
@output_option
@click.pass_context
def clear_quota(ctx: click.Context, subject: str, form: Form) -> None:
    """Let SUBJECT have as much as there is."""
    params = _params(subject)
    show(talk(ctx, lambda caller: caller.call(CLEAR_QUOTA, params=params)), form, lambda quota: quota.subject)


def _params(subject: str) -> QuotaParams:
    kind, slash, name = subject.partition("/")
    if kind not in ("org", "app") or not slash or not name:
        raise click.UsageError(f"{subject!r} is no subject: give org/NAME, app/NAME or 'org/*'")
    return QuotaParams(kind=kind, name=name)


def quotas_table(answer: QuotaList) -> str:
    rows = ((quota.subject, *(_cell(quota, name) for name in _RESOURCES), quota.set_by) for quota in answer.quotas)
    headings = ("SUBJECT", *(name.upper().replace("_", " ") for name in _RESOURCES), "SET BY")
    return table(headings, rows)


def _cell(quota: Quota, name: str) -> str:
    """An entry for every organization has no use of its own."""
    most = getattr(quota.limits, name)
    limit = "-" if most is None else str(most)
    if quota.subject == "org/*":
        return limit
    used = msgspec.structs.asdict(quota.used_here)[name] + msgspec.structs.asdict(quota.used_elsewhere)[name]
    return f"{used}/{limit}"

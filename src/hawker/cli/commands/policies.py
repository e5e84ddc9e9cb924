"""`hawker policies`: what an app's machines may send and be sent."""

import click

from hawker.api.contract.app import AppParams
from hawker.api.contract.network_policy import (
    DELETE_POLICY,
    LIST_POLICIES,
    PUT_POLICY,
    NetworkPolicy,
    NetworkPolicyRequest,
    PolicyMachine,
    PolicyParams,
    PolicyPort,
    Rule,
    Selector,
)
from hawker.cli.connect import talk
from hawker.cli.options import completed, one_app_option
from hawker.cli.output import Form, output_option, show, show_change, table
from hawker.policy import Direction, Transport

NONE = "none"


@click.group("policies", no_args_is_help=True)
def command() -> None:
    """List, set and remove an app's network policies.

    If a policy selects a machine for a direction, the machine may use there what its policies allow, and nothing else.

    \b
    Examples:
      hawker policies set -a shop front --metadata role=web --ingress tcp/8080
      hawker policies set -a shop quiet --egress udp/53 --egress tcp/443
      hawker policies set -a shop closed --machine 3d8f0000000001 --ingress none
      hawker policies list -a shop
      hawker policies remove -a shop 41a1c2d3e4f50617
    """


@command.command("list")
@one_app_option
@output_option
@click.pass_context
def list_policies(ctx: click.Context, app: str, form: Form) -> None:
    """List an app's network policies."""
    show(talk(ctx, lambda caller: caller.call(LIST_POLICIES, params=AppParams(app_name=app))), form, policies_table)


def policies_table(policies: tuple[NetworkPolicy, ...]) -> str:
    rows = [
        (
            policy.id,
            policy.name,
            _selected(policy.selector),
            *(_allowed(policy.allowed, direction) for direction in Direction),
        )
        for policy in policies
    ]
    return table(("ID", "NAME", "MACHINES", "INGRESS", "EGRESS"), rows)


@command.command("set")
@one_app_option
@click.argument("name")
@click.option("--id", "policy_id", metavar="ID", help="The policy to replace; by default a new one.")
@click.option(
    "--machine",
    "machines",
    metavar="ID",
    shell_complete=completed("machines"),
    multiple=True,
    help="A machine to select; default all.",
)
@click.option("--metadata", "pairs", metavar="KEY=VALUE", multiple=True, help="Select machines with all these pairs.")
@click.option("--ingress", metavar="PORT", multiple=True, help="What machines may receive: tcp/80, udp, or none.")
@click.option("--egress", metavar="PORT", multiple=True, help="What machines may send.")
@output_option
@click.pass_context
def set_policy(
    ctx: click.Context,
    app: str,
    name: str,
    policy_id: str | None,
    machines: tuple[str, ...],
    pairs: tuple[str, ...],
    ingress: tuple[str, ...],
    egress: tuple[str, ...],
    form: Form,
) -> None:
    """Create a network policy, or replace one, and print its id."""
    rules = [
        _rule(direction, words)
        for direction, words in ((Direction.INGRESS, ingress), (Direction.EGRESS, egress))
        if words
    ]
    if not rules:
        raise click.UsageError("say what is allowed: --ingress PORT, --egress PORT")
    body = NetworkPolicyRequest(id=policy_id, name=name, selector=_selector(machines, pairs), allowed=tuple(rules))
    answer = talk(ctx, lambda caller: caller.call(PUT_POLICY, params=AppParams(app_name=app), body=body))
    show(answer, form, lambda policy: policy.id)


@command.command("remove")
@one_app_option
@click.argument("policy_id", metavar="ID")
@output_option
@click.pass_context
def remove_policy(ctx: click.Context, app: str, policy_id: str, form: Form) -> None:
    """Remove a network policy."""
    params = PolicyParams(app_name=app, policy_id=policy_id)
    talk(ctx, lambda caller: caller.call(DELETE_POLICY, params=params))
    show_change(form, None, app=app, id=policy_id)


def _selector(machines: tuple[str, ...], pairs: tuple[str, ...]) -> Selector:
    if machines and pairs:
        raise click.UsageError("--machine and --metadata exclude each other")
    if machines:
        return Selector(machines=tuple(PolicyMachine(id=each) for each in machines))
    if pairs:
        return Selector(metadata=dict(map(_pair, pairs)))
    return Selector(all=True)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"--metadata {text!r} is not KEY=VALUE")
    return key, value


def _rule(direction: Direction, words: tuple[str, ...]) -> Rule:
    if NONE in words and len(words) > 1:
        raise click.UsageError(f"--{direction} none allows nothing beside it")
    ports = () if words == (NONE,) else tuple(map(_port, words))
    return Rule(action="allow", direction=direction, ports=ports)


def _port(text: str) -> PolicyPort:
    protocol, slash, number = text.partition("/")
    if protocol not in list(Transport) or (slash and not (number.isascii() and number.isdigit())):
        raise click.UsageError(f"{text!r} is not a port such as tcp/80, nor tcp, udp or none")
    return PolicyPort(protocol=Transport(protocol), port=int(number) if slash else None)


def _selected(selector: Selector) -> str:
    if selector.machines:
        return ",".join(machine.id for machine in selector.machines)
    if selector.metadata:
        return ",".join(f"{key}={value}" for key, value in selector.metadata.items())
    return "all"


def _allowed(rules: tuple[Rule, ...], direction: Direction) -> str:
    """`-` where the policy says nothing."""
    mine = [rule for rule in rules if rule.direction is direction]
    if not mine:
        return "-"
    if any(rule.ports is None for rule in mine):
        return "any"
    return ",".join(_written(port) for rule in mine for port in rule.ports or ()) or NONE


def _written(port: PolicyPort) -> str:
    return port.protocol.value if port.port is None else f"{port.protocol}/{port.port}"

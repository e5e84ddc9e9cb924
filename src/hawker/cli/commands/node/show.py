"""`hawker node list` and `show`: the nodes of the fleet and how they are; what one has, and what its machines hold of
it.
"""

from functools import partial

import click

from hawker.api.caller import Caller
from hawker.api.contract.cluster import GET_NODE, LIST_NODES, FleetNode, NodeParams
from hawker.api.contract.node import NODE_INFO, DriverInfo, NodeInfo
from hawker.cli.connect import talk
from hawker.cli.nodes import clock_notes, find_fleet_node, node_fields, nodes_table
from hawker.cli.options import completed
from hawker.cli.output import Form, fields, local, note, output_option, show, table, wide_output_option


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@wide_output_option
@click.pass_context
def list_command(ctx: click.Context, as_json: bool, form: Form) -> None:
    """List the nodes of the fleet: region, state and capacity, as the asked node knows them.

    CPUS is what is taken and what there is; SHARED the same for shared cpus, of which several are sold for each real
    one: they share it, and each gets its part when all are busy. What is unknown of other regions is shown as "-".
    """
    answer = talk(ctx, lambda caller: caller.call(LIST_NODES))
    show(answer, Form.JSON if as_json else form, partial(nodes_table, wide=form is Form.WIDE))
    for text in clock_notes(answer):
        note(text)


@click.command("show")
@click.argument("node", metavar="[NODE]", required=False, shell_complete=completed("nodes"))
@output_option
@click.pass_context
def show_command(ctx: click.Context, node: str | None, form: Form) -> None:
    """Show the asked node, or another node of the fleet: its driver, version, capacity and use. For a node that is
    down, show its last known data."""
    if node is None:
        show(talk(ctx, lambda caller: caller.call(NODE_INFO)), form, node_text)
    else:
        show(talk(ctx, lambda caller: _get(caller, node)), form, fleet_node_text)


async def _get(caller: Caller, text: str) -> FleetNode:
    found = await find_fleet_node(caller, text)
    return await caller.call(GET_NODE, params=NodeParams(node_id=found.id))


def fleet_node_text(node: FleetNode) -> str:
    said = (_room(node.info), _drivers(node.info)) if node.info else ("it does not answer",)
    return "\n\n".join(filter(None, (node_fields(node), *said)))


def node_text(node: NodeInfo) -> str:
    return "\n\n".join(filter(None, (_about(node), _room(node), _drivers(node))))


def _about(node: NodeInfo) -> str:
    states = ", ".join(f"{count} {state}" for state, count in sorted(node.machines.items()) if count)
    return fields(
        (
            ("id", node.id),
            ("region", node.region),
            ("driver", node.driver),
            ("version", node.version),
            ("since", local(node.started_at)),
            ("machines", states or "none"),
            *((("edge processes", node.edge_processes),) if node.edge_processes > 1 else ()),
            *((("resumes", node.resumes), ("cpu model", node.cpu_model)) if node.resumes else ()),
        )
    )


def _drivers(node: NodeInfo) -> str:
    """What the node found of each when it began; the one it runs machines with is marked."""
    if not node.drivers:
        return ""
    rows = ((each.name, _use(each), each.reason) for each in node.drivers)
    return table(("DRIVER", "USABLE", "WHY"), rows, prose=("WHY",))


def _use(driver: DriverInfo) -> str:
    if driver.chosen:
        return "chosen"
    return "yes" if driver.usable else "no"


def _room(node: NodeInfo) -> str:
    """Shared and performance cpus come from the same cpus: a shared one is a part of what the others leave over."""
    has, used = node.capacity, node.used
    shared = int((has.cpus - used.performance_cpus) * has.shared_cpu_ratio)
    rows = [
        ("shared cpus", shared, used.shared_cpus, shared - used.shared_cpus),
        ("performance cpus", has.cpus, used.performance_cpus, has.cpus - used.performance_cpus),
        ("memory, MiB", has.memory_mb, used.memory_mb, has.memory_mb - used.memory_mb),
        ("disk, MiB", has.disk_mb, used.disk_mb, has.disk_mb - used.disk_mb),
        *(_gpus(kind, total, used.gpus.get(kind, 0)) for kind, total in has.gpus.items()),
    ]
    return table(("RESOURCE", "TOTAL", "USED", "FREE"), rows)


def _gpus(kind: str, total: int, used: int) -> tuple[str, int, int, int]:
    return f"gpus, {kind}", total, used, total - used

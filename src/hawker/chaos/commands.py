"""`hawker chaos`: hurt a node of one's own on purpose, and see that it keeps what it promised.

Each command is a process of its own, like `up`, and no client of a node.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import click

from hawker.chaos.deploys.deploy_blow import CREATES, UPDATES, WHOLE, BlowKind
from hawker.chaos.deploys.deploy_report import HEAD as DEPLOYS_HEAD
from hawker.chaos.deploys.deploy_report import DeployRow, DeploysReport, deploy_line
from hawker.chaos.deploys.deploy_report import line as deploys_line
from hawker.chaos.deploys.deploy_report import summary as deploys_summary
from hawker.chaos.deploys.deploy_trial import DeployTrialPlan, run_deploy_trial
from hawker.chaos.edge.edge_report import HEAD as EDGE_HEAD
from hawker.chaos.edge.edge_report import EdgeRow, EdgeTrialReport, edge_line
from hawker.chaos.edge.edge_report import line as edges_line
from hawker.chaos.edge.edge_report import summary as edge_summary
from hawker.chaos.edge.edge_trial import EdgeBlow, EdgeTrialPlan, run_edge_trial
from hawker.chaos.fleet.report import page as fleet_page
from hawker.chaos.fleet.trial import TrialPlan as FleetPlan
from hawker.chaos.fleet.trial import run_trial
from hawker.chaos.guests import GUEST_DRIVERS
from hawker.chaos.hostile.judgement import HostileReport, HostileRow
from hawker.chaos.hostile.lab import end_with_the_pipe, run_apart
from hawker.chaos.hostile.planted import HOLES, before_it
from hawker.chaos.hostile.trial import SCENES, HostilePlan, run_hostile
from hawker.chaos.moves.blow import CUTS, MOVE_FLOWS, MoveKind, MoveTrialPlan
from hawker.chaos.moves.move_report import HEAD, BlowRow, BlowsReport, blow_line, line
from hawker.chaos.moves.move_report import summary as moves_summary
from hawker.chaos.moves.move_trial import run_move_trial
from hawker.chaos.report import page
from hawker.chaos.soak import plan_of, soak
from hawker.chaos.steps import FLOW_NAMES, DeathRow, StepsPlan, StepsReport, run_steps
from hawker.cli.exits import ExitStatus
from hawker.cli.output import as_json, note
from hawker.clock import SystemClock

_DRIVERS = click.Choice(["container", "process"])
_STEP_DRIVERS = click.Choice(["container", "process", *sorted(GUEST_DRIVERS)])
_BLOWS = [kind.name.lower() for kind in WHOLE]
_EDGE_BLOWS = [kind.name.lower() for kind in EdgeBlow]
_WIDTHS = (10, 15, 22, 10)


@click.group("chaos", no_args_is_help=True)
def command() -> None:
    """Inject faults into a temporary node and check its promises."""


@command.command("steps")
@click.option("--flow", metavar="FLOW", type=click.Choice(FLOW_NAMES), help="Only this flow; default all.")
@click.option("--driver", type=_STEP_DRIVERS, help="The driver; default container for root, else process.")
@click.option("--launcher", type=click.Choice(["auto", "hawker", "crun"]), default="auto",
              help="Who starts containers, as of `hawker up`.")  # fmt: skip
@click.option("--kernels", type=click.Path(path_type=Path, file_okay=False, exists=True),
              help="The directory of imported kernels, for microVMs.")  # fmt: skip
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False, exists=True),
              help="Where to make the node's temporary directory.")  # fmt: skip
@click.option("--in-a-row", is_flag=True, help="Also kill each next daemon, at the next failpoint.")
@click.option("--json", "json", is_flag=True, help="Print one JSON document instead of the table.")
def steps(
    flow: str | None,
    driver: str | None,
    launcher: str,
    kernels: Path | None,
    data_dir: Path | None,
    in_a_row: bool,
    json: bool,
) -> int:
    """Kill a daemon around every step of every operation. Before, inside and after it; then start another one, and
    check that nothing is lost, doubled, half-visible or left over.

    The command uses a temporary node on loopback, and removes it at the end. Flows of two nodes are killed at by
    `hawker chaos move --flow`.

    \b
    Examples:
      hawker chaos steps
      hawker chaos steps --flow create --driver process
      hawker chaos steps --flow suspend --driver qemu --in-a-row
    """
    if not json:
        click.echo(_line(("FLOW", "STEP", "KILLED", "RECOVERED"), "FINDINGS"))
    tell: Callable[[DeathRow], None] = (lambda row: None) if json else (lambda row: click.echo(_row(row)))
    plan = StepsPlan(driver=driver, launcher=launcher, flow=flow, in_a_row=in_a_row, where=data_dir, kernels=kernels)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # ends it as Ctrl-C does, in order
    report = anyio.run(partial(run_steps, plan, SystemClock(), tell))
    click.echo(as_json(report) if json else _summary(report))
    return ExitStatus.FAILED if report.found else ExitStatus.OK


@command.command("soak")
@click.option("--minutes", type=click.FloatRange(0.1, 240), default=5, show_default=True,
              help="How long to inject faults, in minutes; some seconds more until all is at rest.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True,
              help="The same seed deals the same calls and faults in the same order.")  # fmt: skip
@click.option(
    "--driver", type=_DRIVERS, help="container (needs root) or process; default container for root, else process."
)
@click.option("--logs", type=click.Path(path_type=Path, file_okay=False),
              help="A directory for the logs of each daemon.")  # fmt: skip
@click.option("--json", "json", is_flag=True, help="The report as one document.")
def soak_node(minutes: float, seed: int, driver: str | None, logs: Path | None, json: bool) -> int:
    """Let clients call a node while it is hurt at random. Its daemon, its machines, its disk and its clock are hurt.
    Every few faults, let it come to rest and check what it promised. Ends with a report on one page; its status is 1
    when something was found.

    It is a node of the command's own, on loopback and in a temporary directory; for root with a small filesystem of its
    own, which is filled and made read-only. Ctrl-C ends it early and in order; all of it is gone at the end.

    \b
    Examples:
      hawker chaos soak --minutes 10 --seed 7
      hawker chaos soak --minutes 1 --driver process --json
    """
    plan = plan_of(minutes, seed, driver, root=os.geteuid() == 0, logs=logs)
    report = anyio.run(soak, plan, SystemClock())
    click.echo(as_json(report) if json else page(report))
    return report.status


@command.command("fleet")
@click.option("--nodes", type=click.IntRange(3, 30), default=8, show_default=True, help="Number of hosts.")
@click.option(
    "--orders", type=click.IntRange(1, 1000), default=24, show_default=True, help="Orders in each quiet phase."
)
@click.option("--loss", type=click.IntRange(0, 90), default=20, show_default=True,
              help="Percentage of packets lost in the lossy phase.")  # fmt: skip
@click.option("--partition", type=click.FloatRange(1, 3600), default=60, show_default=True,
              help="Seconds of the network partition.")  # fmt: skip
@click.option("--json", "json", is_flag=True, help="The report as one document.")
def fleet(nodes: int, orders: int, loss: int, partition: float, json: bool) -> int:
    """Run a fleet of real nodes, hurt it, and check it. Each node is on a host of its own: a network namespace with a
    link to the others. Order machines while packets are lost, the network is parted, daemons are killed and a host
    loses its power; then check that no order was filled twice, no machine was lost, no host oversold, that all replicas
    agree, and that a spare was started once. Its status is 1 when something was found.

    For root. All of it is gone at the end.

    \b
    Examples:
      hawker chaos fleet
      hawker chaos fleet --nodes 4 --partition 10
    """
    plan = FleetPlan(nodes=nodes, orders=orders, loss_percent=loss, partition_s=partition)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    report = anyio.run(run_trial, plan, SystemClock(), note)
    click.echo(as_json(report) if json else fleet_page(report))
    return report.status


@command.command("move")
@click.option("--workload", type=click.Choice(["ledger", "root", "blocks", "git", "database"]), default="ledger",
              show_default=True,
              help="What writes: synced numbers (in a kept root filesystem), blocks, commits, PostgreSQL.")  # fmt: skip
@click.option("--mode", "modes", multiple=True, type=click.Choice(["warm", "cold"]),
              help="Only moves of this mode; default both.")  # fmt: skip
@click.option("--flow", type=click.Choice(MOVE_FLOWS),
              help="Only deaths in this flow; default all.")  # fmt: skip
@click.option("--place", "places", multiple=True, help="Only deaths at places that begin so; may be repeated.")
@click.option("--both", is_flag=True, help="At each place kill the daemons of both ends.")
@click.option("--no-cuts", is_flag=True, help="Cut no links.")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False, exists=True),
              help="Where to make the temporary directory.")  # fmt: skip
@click.option("--json", "json", is_flag=True, help="Print one JSON document instead of the table.")
def move(
    workload: str, modes: tuple[str, ...], flow: str | None, places: tuple[str, ...], both: bool,
    no_cuts: bool, data_dir: Path | None, json: bool,
) -> int:  # fmt: skip
    """Move a machine and kill the nodes at every step.

    A machine with a volume goes between two real nodes, again and again: now, at a time that was ordered, with a
    snapshot of the volume that follows it, to a node that cannot start it, from which it goes back, and to one that is
    lost, from which it is taken back. At every step of the flows of moves kill the daemon that is at it, source or
    destination, or both; cut the link between them. A client writes all the time: whatever it was told is on disk must
    be there afterwards, and the machine must run at one node.

    For root. Hosts are network namespaces; all of it is gone at the end.

    \b
    Examples:
      hawker chaos move
      hawker chaos move --workload database --mode warm
      hawker chaos move --place move.grant --no-cuts
      hawker chaos move --flow deliver --both --no-cuts
    """
    for place in places:
        if not any(place.startswith(f"{each}.") or each.startswith(place) for each in MOVE_FLOWS):
            known = ", ".join(MOVE_FLOWS)
            raise click.BadParameter(f"no place of a move begins with {place!r}: its flows are {known}")
    if not json:
        click.echo(line(HEAD))
    tell: Callable[[BlowRow], None] = (lambda row: None) if json else (lambda row: click.echo(blow_line(row)))
    plan = MoveTrialPlan(
        workload=workload,
        modes=modes or ("warm", "cold"),
        places=places or ((f"{flow}.",) if flow else ()),
        kinds=(MoveKind.SCHEDULED, MoveKind.FOLLOWED, MoveKind.BACK, MoveKind.RECLAIMED),
        both=both,
        cuts=() if no_cuts else CUTS,
        where=data_dir,
    )
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    report: BlowsReport = anyio.run(partial(run_move_trial, plan, SystemClock(), tell, note))
    click.echo(as_json(report) if json else moves_summary(report))
    return ExitStatus.FAILED if report.found else ExitStatus.OK


@command.command("deploys")
@click.option("--nodes", type=click.IntRange(4, 30), default=10, show_default=True, help="Number of hosts.")
@click.option("--strategy", "strategies", multiple=True, type=click.Choice(["rolling", "canary", "bluegreen"]),
              help="Only deploys of this strategy; default rolling and bluegreen.")  # fmt: skip
@click.option("--blow", "blows", multiple=True, metavar="BLOW", type=click.Choice(_BLOWS),
              help=f"Only this blow: {', '.join(_BLOWS)}. May be repeated.")  # fmt: skip
@click.option("--place", "places", multiple=True,
              help="Only deaths at places that begin so; may be repeated.")  # fmt: skip
@click.option("--partition", type=click.FloatRange(1, 3600), default=60, show_default=True,
              help="Seconds for which a region is parted.")  # fmt: skip
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False, exists=True),
              help="Where to make the temporary directory.")  # fmt: skip
@click.option("--json", "json", is_flag=True, help="Print one JSON document instead of the table.")
def deploys(
    nodes: int, strategies: tuple[str, ...], blows: tuple[str, ...], places: tuple[str, ...], partition: float,
    data_dir: Path | None, json: bool,
) -> int:  # fmt: skip
    """Deploy an app over a fleet and kill whoever takes part.

    An app with a machine on each node, in three regions, is deployed again and again while clients ask at every edge.
    Each time something befalls the deploy: its client, its driver, two of the nodes that keep its state, an edge, a
    region, or the node of a machine at each step of its change. Each deploy must end as promised, with every machine
    of one release, no machine left over, and no request lost at an edge that was spared.

    For root. Hosts are network namespaces; all of it is gone at the end.

    \b
    Examples:
      hawker chaos deploys
      hawker chaos deploys --nodes 4 --strategy rolling --blow driver_host
      hawker chaos deploys --place update.launch
    """
    if not json:
        click.echo(deploys_line(DEPLOYS_HEAD))
    tell: Callable[[DeployRow], None] = (lambda row: None) if json else (lambda row: click.echo(deploy_line(row)))
    narrowed = bool(blows or places)
    plan = DeployTrialPlan(
        nodes=nodes,
        strategies=strategies or ("rolling", "bluegreen"),
        kinds=tuple(BlowKind[name.upper()] for name in blows) if narrowed else WHOLE,
        places=places if narrowed else (UPDATES, CREATES),
        parted_s=partition,
        where=data_dir,
    )
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    report: DeploysReport = anyio.run(run_deploy_trial, plan, SystemClock(), tell)
    click.echo(as_json(report) if json else deploys_summary(report))
    return ExitStatus.FAILED if report.found else ExitStatus.OK


@command.command("edge")
@click.option("--nodes", type=click.IntRange(3, 30), default=5, show_default=True, help="Number of hosts.")
@click.option("--blow", "blows", multiple=True, metavar="BLOW", type=click.Choice(_EDGE_BLOWS),
              help=f"Only this blow: {', '.join(_EDGE_BLOWS)}. May be repeated.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, 1000), default=1, show_default=True,
              help="How often each blow is dealt, each time to another host.")  # fmt: skip
@click.option("--partition", type=click.FloatRange(1, 3600), default=15, show_default=True,
              help="Seconds for which a link is cut.")  # fmt: skip
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False, exists=True),
              help="Where to make the temporary directory.")  # fmt: skip
@click.option("--json", "json", is_flag=True, help="Print one JSON document instead of the table.")
def edge(
    nodes: int, blows: tuple[str, ...], rounds: int, partition: float, data_dir: Path | None, json: bool
) -> int:  # fmt: skip
    """Ask at every edge of a fleet while what serves it dies.

    An app has a machine on each node, and clients ask at every edge all the time. Daemons, machines, edge processes and
    their parents are killed, links are cut, and a host loses its power. No request that may be repeated is lost at an
    edge that was spared, none that may not reaches machines twice, and a daemon that is away costs no request at all.

    For root. Hosts are network namespaces; all of it is gone at the end.

    \b
    Examples:
      hawker chaos edge
      hawker chaos edge --nodes 8 --rounds 10
      hawker chaos edge --blow host --blow link
    """
    if not json:
        click.echo(edges_line(EDGE_HEAD))
    tell: Callable[[EdgeRow], None] = (lambda row: None) if json else (lambda row: click.echo(edge_line(row)))
    kinds = tuple(EdgeBlow[name.upper()] for name in blows) or tuple(EdgeBlow)
    plan = EdgeTrialPlan(nodes=nodes, blows=kinds, rounds=rounds, parted_s=partition, where=data_dir)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    report: EdgeTrialReport = anyio.run(run_edge_trial, plan, SystemClock(), tell)
    click.echo(as_json(report) if json else edge_summary(report))
    return ExitStatus.FAILED if report.found else ExitStatus.OK


@command.command("hostile")
@click.option("--minutes", type=click.FloatRange(0.1, 240), default=15, show_default=True,
              help="About how long to attack, in minutes, shared by the scenes.")  # fmt: skip
@click.option("--scene", "names", multiple=True, help="Only this scene; may be repeated.")
@click.option("--short", is_flag=True, help="Only one scene of each kind.")
@click.option("--list", "listed", is_flag=True, help="Print the scenes, and attack nothing.")
@click.option("--plant", "planted", multiple=True, type=click.Choice([hole.name for hole in HOLES]), metavar="NAME",
              help="Plant this hole in the one node; may be repeated.")  # fmt: skip
@click.option("--plants", is_flag=True, help="List the holes that can be planted, each with a scene that finds it.")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False, exists=True),
              help="Where to make the temporary directory.")  # fmt: skip
@click.option("--json", "json", is_flag=True, help="Print one JSON document instead of the table.")
@click.option("--inside", type=click.Path(path_type=Path, file_okay=False, exists=True), hidden=True)
def hostile(
    minutes: float, names: tuple[str, ...], short: bool, listed: bool, planted: tuple[str, ...], plants: bool,
    data_dir: Path | None, json: bool, inside: Path | None,
) -> int:  # fmt: skip
    """Attack a real node scene by scene. Without a token, with an app's token, from a machine, by a registry. Meanwhile
    look at what another tenant sees: its machines, checks, orders, data, and how long each call takes. Nothing may go
    wrong for it, nothing may take twice as long as alone, and nothing may be left afterwards.

    For root. The node, its networks and its disk are in namespaces of their own; all of it is gone at the end.

    \b
    Examples:
      hawker chaos hostile
      hawker chaos hostile --minutes 5 --scene "a full disk" --scene "many waits"
    """
    known = [scene.name for scene in SCENES]
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"no scene is called {unknown[0]!r}: see --list", param_hint="--scene")
    if listed:
        click.echo("\n".join(_attack(scene.name, scene.by.value, scene.shared, "") for scene in SCENES))
        return ExitStatus.OK
    if plants:
        click.echo("\n".join(f"{hole.name:22}{hole.what:50}{hole.scene}" for hole in HOLES))
        return ExitStatus.OK
    if inside is None:
        return run_apart(sys.argv[3:], data_dir)
    end_with_the_pipe()
    if not json:
        click.echo(_attack("SCENE", "BY", "SHARED", "WORST AT P99, ALONE     FINDINGS"))
    tell: Callable[[HostileRow], None] = (lambda row: None) if json else (lambda row: click.echo(_hostile_row(row)))
    plan = HostilePlan(minutes=minutes, names=names, short=short, before_it=before_it(planted))
    report = anyio.run(partial(run_hostile, plan, inside, SystemClock(), tell))
    click.echo(as_json(report) if json else _hostile_summary(report))
    return ExitStatus.FAILED if report.found else ExitStatus.OK


def _attack(scene: str, by: str, shared: str, rest: str) -> str:
    return f"{scene:32}{by:16}{shared:20}{rest}".rstrip()


def _hostile_row(row: HostileRow) -> str:
    worst = row.worst
    told = "-" if worst is None else f"{worst.operation} {worst.p99_ms:.0f} ms, {worst.alone_p99_ms:.0f} ms"
    again = f"played {row.plays} times; " if row.plays > 1 else ""
    return _attack(row.scene, row.by, row.shared, f"{told:24}{again}{'; '.join(row.findings) or 'none'}")


def _hostile_summary(report: HostileReport) -> str:
    text = f"{len(report.rows)} scenes, {report.found} findings; {report.seconds:.0f} s"
    return "\n".join([*report.findings, text])


def _row(row: DeathRow) -> str:
    killed = f"inside: {row.point}" if row.point else row.where
    recovered = "died too" if row.recovered_ms is None else f"{row.recovered_ms:.0f} ms"
    return _line((row.flow, row.step, killed, recovered), "; ".join(row.findings) or "none")


def _line(cells: tuple[str, str, str, str], rest: str) -> str:
    return "  ".join([*(f"{cell:{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)), rest])


def _summary(report: StepsReport) -> str:
    recovered = sorted(row.recovered_ms for row in report.rows if row.recovered_ms is not None)
    middle = f"{recovered[len(recovered) // 2]:.0f} ms" if recovered else "-"
    longest = f"{recovered[-1]:.0f} ms" if recovered else "-"
    text = (
        f"{len(report.rows)} deaths, {report.found} findings; recovered in {middle} at the median, {longest} at most; "
        f"driver {report.driver}; {report.seconds:.0f} s"
    )
    return "\n".join([*report.findings, text])

"""The `hawker` command: the tree of commands, and what becomes of an error. Each command is a file in the `commands`
of its room, which this file names and does not import."""

from typing import TYPE_CHECKING

import click

from hawker.cli.access import Access
from hawker.cli.exits import ExitStatus, Failure, report, say_error
from hawker.cli.lazy import CommandModule, LazyGroup, found
from hawker.cli.token_input import read_token, refuse_root
from hawker.deferred import deferred
from hawker.errors import HawkerError

if TYPE_CHECKING:
    from hawker.cli import elsewhere
else:
    elsewhere = deferred("hawker.cli.elsewhere")

_IN = "hawker.cli.commands"
_MACHINE = f"{_IN}.machine"

TABLE = {
    "up": CommandModule("hawker.up.commands.up", "Run a node on this host."),
    "join": CommandModule("hawker.up.commands.join", "Join a cluster, and run a node on this host."),
    "worker": CommandModule("hawker.up.commands.worker", "Run a node that does not answer clients."),
    "broker": CommandModule("hawker.up.commands.broker", "Run a broker beside a node of this host."),
    "run": CommandModule(
        f"{_MACHINE}.run", "Order a machine and wait until it runs: machine run.", attribute="run_command"
    ),
    "ps": CommandModule(f"{_MACHINE}.list", "List machines: machine list."),
    "logs": CommandModule(f"{_MACHINE}.logs", "Print output of machines: machine logs."),
    "exec": CommandModule(f"{_MACHINE}.exec", "Run a command in a machine: machine exec."),
    "attach": CommandModule(f"{_MACHINE}.attach", "Go to a machine's own process: machine attach."),
    "cp": CommandModule(f"{_MACHINE}.cp", "Copy files into a machine or out of it: machine cp."),
    "proxy": CommandModule(f"{_IN}.proxy", "Lead a port of this computer to a port of a machine."),
    "stats": CommandModule(f"{_MACHINE}.inspect", "What machines use now: machine stats.", attribute="stats_command"),
    "top": CommandModule(f"{_MACHINE}.inspect", "List the processes in a machine: machine ps.", attribute="ps_command"),
    "start": CommandModule(f"{_MACHINE}.operations", "Start machines: machine start.", attribute="start"),
    "stop": CommandModule(f"{_MACHINE}.operations", "Stop machines: machine stop.", attribute="stop"),
    "restart": CommandModule(f"{_MACHINE}.operations", "Restart machines: machine restart.", attribute="restart"),
    "rm": CommandModule(f"{_MACHINE}.operations", "Destroy machines: machine destroy.", attribute="destroy"),
    "pull": CommandModule(f"{_IN}.images", "Pull an image to the node: images pull.", attribute="pull_image"),
    "edge-process": CommandModule("hawker.edge.program", "What `edge serve` starts.", hidden=True),
    "dns": CommandModule("hawker.dns.commands", "Answer names for machines; `up` starts it.", hidden=True),
    "presence": CommandModule("hawker.fleet.presence", "Answer for this host; `up` starts it.", hidden=True),
    "apps": CommandModule(f"{_IN}.apps", "List, create, show and destroy apps."),
    "app": CommandModule(f"{_IN}.apps", "The same as apps.", hidden=True),
    "machine": CommandModule(f"{_IN}.machine", "Order machines and work with them."),
    "machines": CommandModule(f"{_IN}.machine", "The same as machine.", hidden=True),
    "m": CommandModule(f"{_IN}.machine", "The same as machine.", hidden=True),
    "launch": CommandModule(f"{_IN}.launch", "Write a fly.toml for an image."),
    "config": CommandModule(f"{_IN}.config", "Check, show and save an app's fly.toml."),
    "deploy": CommandModule(f"{_IN}.deploy", "Bring an app's machines to what its fly.toml says."),
    "rollback": CommandModule(f"{_IN}.rollback", "Deploy an older release of an app once more."),
    "scale": CommandModule(f"{_IN}.scale", "Give an app more machines, or fewer."),
    "releases": CommandModule(f"{_IN}.releases", "List an app's releases."),
    "place": CommandModule(f"{_IN}.place", "Order machines and show every bid, or only ask for bids."),
    "volumes": CommandModule(f"{_IN}.volumes", "Disks that outlive machines, and their snapshots."),
    "volume": CommandModule(f"{_IN}.volumes", "The same as volumes.", hidden=True),
    "moves": CommandModule(f"{_IN}.moves", "Show, pause, limit and cancel moves between nodes."),
    "images": CommandModule(f"{_IN}.images", "List, pull, import, push and remove the node's images."),
    "image": CommandModule(f"{_IN}.images", "The same as images.", hidden=True),
    "registry": CommandModule(f"{_IN}.registry", "Log organizations in at registries of images."),
    "runs": CommandModule(f"{_IN}.runs", "List, show, retry and abort runs: what the node did."),
    "secrets": CommandModule(f"{_IN}.secrets", "Set, list and remove an app's secrets."),
    "secret": CommandModule(f"{_IN}.secrets", "The same as secrets.", hidden=True),
    "ips": CommandModule(f"{_IN}.ips", "List, allocate and release an app's addresses."),
    "wireguard": CommandModule(f"{_IN}.wireguard", "Let your own computer into a private network."),
    "route": CommandModule(f"{_IN}.route", "Say where a request for an app would go, and why."),
    "edge": CommandModule(f"{_IN}.edge", "What the edge of this host serves, for routers in front."),
    "certs": CommandModule(f"{_IN}.certs", "Import and check certificates of host names."),
    "policies": CommandModule(f"{_IN}.policies", "List, set and remove an app's network policies."),
    "quotas": CommandModule(f"{_IN}.quotas", "Show, set and clear what organizations and apps may have."),
    "tokens": CommandModule(f"{_IN}.tokens", "Make, inspect and revoke limited tokens."),
    "token": CommandModule(f"{_IN}.tokens", "The same as tokens.", hidden=True),
    "audit": CommandModule(f"{_IN}.audit", "Show, export and verify who did what on this host's node."),
    "kernel": CommandModule(f"{_IN}.kernel", "Import, list, choose and remove the kernels of microVMs."),
    "fleet": CommandModule(f"{_IN}.fleet", "Invite hosts into the cluster."),
    "node": CommandModule(f"{_IN}.node", "The nodes of the fleet: capacity, state, backup, repair."),
    "nodes": CommandModule(f"{_IN}.node", "The same as node.", hidden=True),
    "catalog": CommandModule(f"{_IN}.catalog", "Query in SQL what runs where in the cluster."),
    "sim": CommandModule("hawker.sim.commands.worker", "Simulate a worker in virtual time and check its promises."),
    "chaos": CommandModule("hawker.chaos.commands", "Inject faults into a temporary node and check its promises."),
    "version": CommandModule(f"{_IN}.version", "Print the versions of this command and of the node."),
    "completion": CommandModule(f"{_IN}.completion", "Print the code that completes commands in your shell."),
}

_EPILOG = """\b
Examples:
  hawker up                         run a node on this host
  hawker run hawker/hello           order a machine, wait until it runs
  hawker ps                         what runs where
  hawker exec 3d8f sh               a shell inside it
  hawker run --rm -it alpine:3 sh   a shell in a machine that goes with it

Without --url the command finds the node that runs on this host.
"""


def _say_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """By name: package metadata is read when it is asked for."""
    if wanted:
        click.echo(f"hawker {found('importlib.metadata', 'version')('hawker')}")
        ctx.exit()


def _root(ctx: click.Context, url: str | None, token: str | None, token_file: str | None) -> None:
    refuse_root(token)
    ctx.obj = Access(url=url, token=read_token(token_file) or token or None)


ROOT = LazyGroup(
    "hawker",
    TABLE,
    callback=click.pass_context(_root),
    params=[
        click.Option(["--url"], metavar="URL", help="The node's address. [env var: HAWKER_URL]"),
        click.Option(["--token"], metavar="TOKEN", help="A limited token for it. [env var: HAWKER_TOKEN]"),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_say_version,
            help="Print the version of this command.",
        ),
        click.Option(["--token-file"], metavar="FILE", help="A file with the token for it, or - for standard input."),
    ],
    help="Order machines: workers bid, and the order fills now or not at all.",
    epilog=_EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _misuse(error: click.UsageError) -> int:
    """Asked without arguments, a group shows its help; anything else is an error like all others."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        where = error.ctx.command_path if error.ctx is not None else "hawker"
        text, hint = elsewhere.told(error)
        say_error(" ".join(text.split()), hint or f"see `{where} --help`")
    return ExitStatus.USAGE


def main(arguments: list[str] | None = None) -> int:
    """The exit status. A command returns its own, or None for 0."""
    try:
        status = ROOT.main(arguments, prog_name="hawker", standalone_mode=False)
    except (HawkerError, Failure) as error:
        return report(error)
    except click.UsageError as error:
        return _misuse(error)
    except (click.Abort, KeyboardInterrupt):
        return ExitStatus.INTERRUPTED
    return status if isinstance(status, int) else ExitStatus.OK

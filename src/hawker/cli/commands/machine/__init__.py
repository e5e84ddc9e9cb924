"""The `hawker machine` group: its table of commands, in the order of their lives."""

from hawker.cli.lazy import CommandModule, LazyGroup

_IN = "hawker.cli.commands.machine"

TABLE = {
    "run": CommandModule(f"{_IN}.run", "Order a machine and wait until it runs.", attribute="run_command"),
    "create": CommandModule(f"{_IN}.run", "Order a machine without starting it.", attribute="create"),
    "list": CommandModule(f"{_IN}.list", "List machines."),
    "ls": CommandModule(f"{_IN}.list", "The same as list.", hidden=True),
    "status": CommandModule(
        f"{_IN}.inspect", "Show a machine: its checks, events and last run.", attribute="status_command"
    ),
    "show": CommandModule(f"{_IN}.inspect", "The same as status.", hidden=True, attribute="status_command"),
    "logs": CommandModule(f"{_IN}.logs", "Print a machine's output."),
    "exec": CommandModule(f"{_IN}.exec", "Run a command in a machine."),
    "attach": CommandModule(f"{_IN}.attach", "Go to a machine's own process, with your terminal or pipe."),
    "cp": CommandModule(f"{_IN}.cp", "Copy files into a machine or out of it."),
    "stats": CommandModule(
        f"{_IN}.inspect", "What machines use: cpu, memory, disk, network.", attribute="stats_command"
    ),
    "ps": CommandModule(f"{_IN}.inspect", "List the processes in a machine.", attribute="ps_command"),
    "top": CommandModule(f"{_IN}.inspect", "The same as ps.", hidden=True, attribute="ps_command"),
    "start": CommandModule(f"{_IN}.operations", "Start machines.", attribute="start"),
    "stop": CommandModule(f"{_IN}.operations", "Stop machines.", attribute="stop"),
    "suspend": CommandModule(f"{_IN}.operations", "Suspend machines until they are started.", attribute="suspend"),
    "restart": CommandModule(f"{_IN}.operations", "Stop machines and start them again.", attribute="restart"),
    "kill": CommandModule(f"{_IN}.operations", "Send a signal to machines.", attribute="kill"),
    "update": CommandModule(f"{_IN}.change", "Give a machine a new config and restart it.", attribute="update_command"),
    "rename": CommandModule(f"{_IN}.operations", "Give a machine another name.", attribute="rename"),
    "move": CommandModule(f"{_IN}.move", "Move a machine with its volume to another node."),
    "clone": CommandModule(
        f"{_IN}.run", "Order another machine with the config of an existing one.", attribute="clone_command"
    ),
    "destroy": CommandModule(f"{_IN}.operations", "Destroy machines.", attribute="destroy"),
    "rm": CommandModule(f"{_IN}.operations", "The same as destroy.", hidden=True, attribute="destroy"),
    "wait": CommandModule(f"{_IN}.operations", "Wait until a machine is in a state.", attribute="wait_command"),
    "cordon": CommandModule(f"{_IN}.operations", "Take machines out of routing.", attribute="cordon"),
    "uncordon": CommandModule(f"{_IN}.operations", "Put machines back into routing.", attribute="uncordon"),
    "events": CommandModule(f"{_IN}.inspect", "What happened to a machine.", attribute="events_command"),
    "history": CommandModule(
        f"{_IN}.inspect", "The whole history of a machine, also of a destroyed one.", attribute="history_command"
    ),
    "versions": CommandModule(f"{_IN}.inspect", "The versions of a machine's config.", attribute="versions_command"),
    "memory": CommandModule(f"{_IN}.change", "Show and change a running machine's memory.", attribute="memory_group"),
    "metadata": CommandModule(
        f"{_IN}.change", "Show, set and remove a machine's metadata.", attribute="metadata_group"
    ),
}

_EPILOG = """\b
A MACHINE is given by its id, the beginning of it, or its name.

\b
Examples:
  hawker machine run -e PORT=8080 --memory 512m hawker/hello
  hawker machine run --rm --attach alpine:3 -- echo hello
  hawker machine logs -f web
  hawker machine destroy --force 3d8f
"""

command = LazyGroup(
    "machine",
    TABLE,
    help="Order machines and work with them.",
    epilog=_EPILOG,
    no_args_is_help=True,
)

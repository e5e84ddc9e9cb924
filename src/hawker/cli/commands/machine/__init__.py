"""The `hawker machine` group: its table of commands, in the order of their lives."""

from hawker.cli.lazy import CommandModule, LazyGroup

_IN = "hawker.cli.commands.machine"

TABLE = {
    "run": CommandModule(f"{_IN}.run", "Order a machine and wait until it runs."),
    "create": CommandModule(f"{_IN}.run", "Order a machine without starting it.", attribute="create"),
    "list": CommandModule(f"{_IN}.list", "List machines."),
    "ls": CommandModule(f"{_IN}.list", "The same as list.", hidden=True),
    "status": CommandModule(f"{_IN}.status", "Show a machine: its checks, events and last run."),
    "show": CommandModule(f"{_IN}.status", "The same as status.", hidden=True),
    "logs": CommandModule(f"{_IN}.logs", "Print a machine's output."),
    "exec": CommandModule(f"{_IN}.exec", "Run a command in a machine."),
    "attach": CommandModule(f"{_IN}.attach", "Go to a machine's own process, with your terminal or pipe."),
    "cp": CommandModule(f"{_IN}.cp", "Copy files into a machine or out of it."),
    "stats": CommandModule(f"{_IN}.stats", "What machines use: cpu, memory, disk, network."),
    "ps": CommandModule(f"{_IN}.ps", "List the processes in a machine."),
    "top": CommandModule(f"{_IN}.ps", "The same as ps.", hidden=True),
    "start": CommandModule(f"{_IN}.operations", "Start machines.", attribute="start"),
    "stop": CommandModule(f"{_IN}.operations", "Stop machines.", attribute="stop"),
    "suspend": CommandModule(f"{_IN}.operations", "Suspend machines until they are started.", attribute="suspend"),
    "restart": CommandModule(f"{_IN}.operations", "Stop machines and start them again.", attribute="restart"),
    "kill": CommandModule(f"{_IN}.operations", "Send a signal to machines.", attribute="kill"),
    "update": CommandModule(f"{_IN}.update", "Give a machine a new config and restart it."),
    "rename": CommandModule(f"{_IN}.operations", "Give a machine another name.", attribute="rename"),
    "move": CommandModule(f"{_IN}.move", "Move a machine with its volume to another node."),
    "clone": CommandModule(f"{_IN}.clone", "Order another machine with the config of an existing one."),
    "destroy": CommandModule(f"{_IN}.operations", "Destroy machines.", attribute="destroy"),
    "rm": CommandModule(f"{_IN}.operations", "The same as destroy.", hidden=True, attribute="destroy"),
    "wait": CommandModule(f"{_IN}.wait", "Wait until a machine is in a state."),
    "cordon": CommandModule(f"{_IN}.operations", "Take machines out of routing.", attribute="cordon"),
    "uncordon": CommandModule(f"{_IN}.operations", "Put machines back into routing.", attribute="uncordon"),
    "events": CommandModule(f"{_IN}.events", "What happened to a machine."),
    "history": CommandModule(f"{_IN}.history", "The whole history of a machine, also of a destroyed one."),
    "versions": CommandModule(f"{_IN}.versions", "The versions of a machine's config."),
    "memory": CommandModule(f"{_IN}.memory", "Show and change a running machine's memory."),
    "metadata": CommandModule(f"{_IN}.metadata", "Show, set and remove a machine's metadata."),
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

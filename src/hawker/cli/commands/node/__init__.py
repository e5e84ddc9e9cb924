"""`hawker node`: what the node has and how it is; its backups."""

from hawker.cli.lazy import LazyGroup, Place

_IN = "hawker.cli.commands.node"
_SHOW = "Show the node: its driver and version, what it has, and what is used of it."

TABLE = {
    "show": Place(f"{_IN}.show", _SHOW),
    "status": Place(f"{_IN}.show", _SHOW, hidden=True),
    "doctor": Place(f"{_IN}.doctor", "Compare store and host, say what is wrong, and mend it when asked."),
    "backup": Place(f"{_IN}.backup", "Copy the store of a running node to a file here."),
    "restore": Place(f"{_IN}.restore", "Put a backup in the place of a stopped node's store."),
}

command = LazyGroup("node", TABLE, help="What the node has and how it is; backups.", no_args_is_help=True)

"""`hawker node`: the nodes of the fleet, what each has and how it is; backups."""

from hawker.cli.lazy import LazyGroup, Place

_IN = "hawker.cli.commands.node"
_SHOW = "Show the node: its driver and version, what it has, and what is used of it."

TABLE = {
    "list": Place(f"{_IN}.list", "List the nodes of the fleet: their region, life and room."),
    "show": Place(f"{_IN}.show", _SHOW),
    "status": Place(f"{_IN}.show", _SHOW, hidden=True),
    "cordon": Place(f"{_IN}.cordon", "Disable scheduling on a node.", attribute="cordon"),
    "uncordon": Place(f"{_IN}.cordon", "Enable scheduling on a node.", attribute="uncordon"),
    "drain": Place(f"{_IN}.drain", "Move a node's machines to other nodes."),
    "forget": Place(f"{_IN}.forget", "Remove a node that will not come back."),
    "keys": Place(f"{_IN}.keys", "List and replace the keys that nodes seal their messages with."),
    "doctor": Place(f"{_IN}.doctor", "Compare store and host, say what is wrong, and mend it when asked."),
    "backup": Place(f"{_IN}.backup", "Copy the store of a running node to a file here."),
    "restore": Place(f"{_IN}.restore", "Put a backup in the place of a stopped node's store."),
}

command = LazyGroup(
    "node", TABLE, help="The nodes of the fleet, what each has and how it is; backups.", no_args_is_help=True
)

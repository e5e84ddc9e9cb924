"""`hawker node`: the nodes of the fleet, what each has and how it is; backups."""

from hawker.cli.lazy import CommandModule, LazyGroup

_IN = "hawker.cli.commands.node"
_SHOW = "Show a node: its driver, version, capacity and use."

TABLE = {
    "list": CommandModule(
        f"{_IN}.show", "List the nodes of the fleet: region, state and capacity.", attribute="list_command"
    ),
    "show": CommandModule(f"{_IN}.show", _SHOW, attribute="show_command"),
    "status": CommandModule(f"{_IN}.show", _SHOW, hidden=True, attribute="show_command"),
    "cordon": CommandModule(f"{_IN}.drain", "Disable scheduling on a node.", attribute="cordon"),
    "uncordon": CommandModule(f"{_IN}.drain", "Enable scheduling on a node.", attribute="uncordon"),
    "drain": CommandModule(f"{_IN}.drain", "Move a node's machines to other nodes.", attribute="drain_command"),
    "evacuate": CommandModule(f"{_IN}.drain", "Take all off a node whose disk is dying.", attribute="evacuate_command"),
    "forget": CommandModule(f"{_IN}.drain", "Remove a node that will not come back.", attribute="forget_command"),
    "remove": CommandModule("hawker.up.commands.remove", "Take the node of this host off it, and leave nothing of it."),
    "keys": CommandModule(f"{_IN}.keys", "List and rotate the keys that encrypt messages between nodes."),
    "certs": CommandModule(f"{_IN}.certs", "List and import certificates of the platform's own names."),
    "mesh": CommandModule("hawker.up.commands.mesh", "Show this host's tunnels to other hosts, or replace their key."),
    "doctor": CommandModule(f"{_IN}.doctor", "Compare store and host, and repair differences on request."),
    "backup": CommandModule(
        f"{_IN}.backup", "Copy the store of a running node to a local file.", attribute="backup_command"
    ),
    "restore": CommandModule(
        f"{_IN}.backup", "Replace a stopped node's store with a backup.", attribute="restore_command"
    ),
}

command = LazyGroup(
    "node", TABLE, help="The nodes of the fleet: capacity, state, backup, repair.", no_args_is_help=True
)

"""The `hawker volumes` group: its table of commands, in the order of their lives."""

from hawker.cli.lazy import CommandModule, LazyGroup

_IN = "hawker.cli.commands.volumes"

TABLE = {
    "list": CommandModule(f"{_IN}.list", "List volumes."),
    "ls": CommandModule(f"{_IN}.list", "The same as list.", hidden=True),
    "create": CommandModule(f"{_IN}.create", "Create a volume."),
    "show": CommandModule(f"{_IN}.list", "Show a volume.", attribute="show_volume"),
    "update": CommandModule(f"{_IN}.change", "Set daily snapshots and their retention.", attribute="update"),
    "extend": CommandModule(f"{_IN}.change", "Make a volume larger.", attribute="extend"),
    "fork": CommandModule(f"{_IN}.create", "Fork a volume: create one with its content.", attribute="fork"),
    "detach": CommandModule(f"{_IN}.change", "Detach volumes from stopped machines.", attribute="detach"),
    "move": CommandModule(f"{_IN}.change", "Move a volume to another node, or to another app.", attribute="move"),
    "destroy": CommandModule(f"{_IN}.change", "Destroy volumes; undelete works for a day.", attribute="destroy"),
    "rm": CommandModule(f"{_IN}.change", "The same as destroy.", hidden=True, attribute="destroy"),
    "undelete": CommandModule(f"{_IN}.change", "Undelete destroyed volumes.", attribute="undelete"),
    "backup": CommandModule(f"{_IN}.backups", "Back a volume up off its host.", attribute="backup_volume"),
    "backups": CommandModule(f"{_IN}.backups", "List an app's backups.", attribute="list_backups"),
    "restore": CommandModule(f"{_IN}.backups", "Create a volume from a backup.", attribute="restore_backup"),
    "verify": CommandModule(f"{_IN}.repository", "Read backups and check every byte.", attribute="verify_backups"),
    "prune": CommandModule(f"{_IN}.repository", "Remove backups beyond their retention.", attribute="prune_backups"),
    "extract": CommandModule(f"{_IN}.repository", "Write a backup to a file.", attribute="extract_backup"),
    "contents": CommandModule(f"{_IN}.repository", "List a repository of backups.", attribute="list_contents"),
    "forget": CommandModule(f"{_IN}.repository", "Remove backups by name.", attribute="forget_backups"),
    "key": CommandModule(f"{_IN}.key", "Export or import the key of backups."),
    "snapshots": CommandModule(f"{_IN}.snapshots", "List, take and restore snapshots."),
    "snapshot": CommandModule(f"{_IN}.snapshots", "The same as snapshots.", hidden=True),
}

_EPILOG = """\b
A VOLUME is given by its id, the beginning of it, or its name.

\b
Examples:
  hawker volumes create data --size 10
  hawker machine run --volume data:/data hawker/hello
  hawker volumes snapshots create data
  hawker volumes extend data --size +5
"""

command = LazyGroup(
    "volumes",
    TABLE,
    help="Disks that outlive machines.",
    epilog=_EPILOG,
    no_args_is_help=True,
)

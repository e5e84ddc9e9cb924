"""Words that people bring from docker, Fly, Nomad and Kubernetes, and what to type here instead. Read only where a word
is none of this command line; what already is a command or an option here has no line.
"""

import click
from click.exceptions import NoSuchCommand, NoSuchOption

COMMANDS = {
    **{
        name: f"machine {name}"
        for name in (
            *("create", "status", "suspend", "kill", "update", "rename", "clone"),
            *("destroy", "wait", "events", "history", "versions", "metadata"),
        )
    },
    **dict.fromkeys(("remove", "delete"), "rm"),
    **dict.fromkeys(("inspect", "describe", "show"), "machine status"),
    **dict.fromkeys(("list", "ls", "get"), "ps"),
    **dict.fromkeys(("container", "containers", "pod", "pods", "alloc"), "machine"),
    **dict.fromkeys(("ssh", "shell", "console"), "exec"),
    **dict.fromkeys(("apply", "compose", "stack", "service", "job"), "deploy"),
    **dict.fromkeys(("info", "df"), "node show"),
    **dict.fromkeys(("platform", "regions", "members"), "node list"),
    **dict.fromkeys(("server", "agent", "daemon", "serve"), "up"),
    **dict.fromkeys(("import", "load"), "images import"),
    **dict.fromkeys(("prune", "system"), "images prune"),
    "auth": "tokens",
    "doctor": "node doctor",
    "drain": "node drain",
    "login": "registry login",
    "logout": "registry logout",
    "port-forward": "proxy",
    "push": "images push",
    "rmi": "images remove",
    "snapshots": "volumes snapshots",
    "tag": "images import FILE --as NAME",
}
"""Words after `hawker`, and the command that does it."""

TOLD = {
    "backup": "it is `hawker volumes backup` for a volume, and `hawker node backup` for a node's records",
    "restore": "it is `hawker volumes restore` for a volume, and `hawker node restore` for a node's records",
    "mesh": "machines of a network reach each other across hosts without more: `hawker up --mesh` says how",
    "build": "images are built elsewhere: `podman save NAME | hawker images import -` brings one here",
    "cordon": "it is `hawker node cordon` for a host, and `hawker machine cordon` for a machine",
    "uncordon": "it is `hawker node uncordon` for a host, and `hawker machine uncordon` for a machine",
    "help": "it is `hawker COMMAND --help`",
    "network": "an app's machines are in a private network without more; `hawker policies` narrows it",
    "save": "an image leaves a node by `hawker images push`, a volume by `hawker volumes backup`",
}
"""The same where it takes a sentence."""

WITHIN = {
    "ls": ("list", "show"),
    "get": ("list", "show"),
    "rm": ("destroy", "remove", "forget", "unset", "clear", "revoke", "release", "logout"),
    "show": ("status", "list", "inspect"),
    "inspect": ("show", "status", "list"),
    "describe": ("show", "status", "list"),
    "add": ("create", "set", "allocate", "import"),
    "new": ("create",),
    "load": ("import",),
    "sign-in": ("login",),
    "status": ("show", "list"),
}
WITHIN |= dict.fromkeys(("delete", "remove", "destroy"), ("remove", *WITHIN["rm"]))
"""Words after the name of a group: the first of these that the group has."""

OPTIONS = {
    "--mount": "-v VOLUME:/path mounts a volume",
    "--tmpfs": "the root filesystem is as fresh at each start; /dev/shm is in memory",
    "--network": "an app's machines share a private network: choose the app with -a",
    "--link": "machines of a network find each other by name: NAME.vm.APP.internal",
    "--privileged": "no machine may what the host may; `hawker up --driver qemu` gives machines kernels of their own",
    "--hostname": "a machine's host name is its id; -n gives it a name",
    "--workdir": "it is the image's; sh -c 'cd /path && exec COMMAND' begins elsewhere",
    "--gpus": "name them in a config: --config FILE with guest.gpus and guest.gpu_kind",
    "--pull": "a tag is looked up at its registry at each order; `hawker images pull` does it before",
    "--platform": "an image is run on hosts of its platform",
    "--memory-swap": "machines have no swap: --memory is the limit",
    "--init": "every machine has a process 1 that reaps what ends",
    "--expose": "machines of a network reach all ports of each other; -p publishes one at the host",
    "--publish-all": "-p publishes a port: -p 8080:80",
    "--dns": "`hawker up --nameserver` chooses a host's name servers",
    "--health-cmd": "--check tcp:5432 or --check http:8080/ready",
    "--port": "-p 8080:80 publishes a port",
    "--vm-memory": "--memory 512m",
    "--vm-cpus": "--cpus 2",
    "--autostop": "fly.toml says it: `hawker deploy`",
    "--command": "the words after the image are the command",
    "--shell": "--rm -it IMAGE sh",
    "--file-local": "-f /path/in/machine=LOCAL_FILE",
    "--org": "an app belongs to an organization: `hawker apps create NAME --org ORG`, then -a NAME",
}
OPTIONS |= {
    "--net": OPTIONS["--network"],
    "--autostart": OPTIONS["--autostop"],
    "-w": OPTIONS["--workdir"],
    "-P": OPTIONS["--publish-all"],
    "-l": "--metadata NAME=VALUE",
}
"""Options of `docker run` and `fly machine run`, for the commands that order or change machines."""

_PASSWORD = {"-p": "a password on the command line can be read by every user of this host: --password-stdin"}
_ORDERING = dict.fromkeys(("run", "create", "update", "clone"), OPTIONS)
OF_COMMAND = _ORDERING | {"login": _PASSWORD, "pull": _PASSWORD, "stats": {"--no-stream": "it looks once; -f goes on"}}


def told(error: click.UsageError) -> tuple[str, str | None]:
    """What is said of a wrong command line, and what to type instead, if that is known."""
    if isinstance(error, NoSuchCommand) and error.ctx is not None:
        word = error.command_name
        said = _of_group(word, error.ctx) if error.ctx.parent is not None else _of_root(word)
        if said is not None:
            return f"No such command '{word}': {said}.", None
    if isinstance(error, NoSuchOption) and error.ctx is not None:
        hint = OF_COMMAND.get(error.ctx.command.name or "", {}).get(error.option_name)
        if hint is not None:
            return f"No such option '{error.option_name}'.", hint
    return error.format_message().replace("is not a valid integer range", "is not a whole number"), None


def _of_root(word: str) -> str | None:
    return f"it is `hawker {COMMANDS[word]}`" if word in COMMANDS else TOLD.get(word)


_WITHIN_SCALE = {
    "show": "`hawker ps -a APP` has the machines, and `hawker machine status` the size of one",
    **dict.fromkeys(("vm", "memory"), "sizes are in fly.toml: change [[vm]], then `hawker deploy`"),
}


def _of_group(word: str, ctx: click.Context) -> str | None:
    assert isinstance(ctx.command, click.Group)
    if ctx.command.name == "scale" and word in _WITHIN_SCALE:
        return _WITHIN_SCALE[word]
    here = set(ctx.command.list_commands(ctx))
    found = next((each for each in WITHIN.get(word, ()) if each in here), None)
    return None if found is None else f"it is `{ctx.command_path} {found}`"

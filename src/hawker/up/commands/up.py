"""`hawker up`: reads the settings and becomes the node. The one command that is a process of its own, so the one
file of the command line that imports what stands above it.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import get_args, get_type_hints

import click
import msgspec

from hawker import up
from hawker.cli.target import VARIABLES
from hawker.settings import Settings, load_settings

HELP: dict[str, str] = {
    "data_dir": "The node's data directory; /var/lib/hawker for root.",
    "listen": "HOST:PORT of the API; default 127.0.0.1:4280, port 0 takes a free port. Ignored when systemd passes"
    " a socket.",
    "region": "The region that the node is in.",
    "driver": "container (default for root), process (default for other users), qemu, firecracker, cloud-hypervisor,"
    " or auto: the best that works here.",
    "ephemeral": "Destroy every machine when the node stops.",
    "log_level": "debug, info, warning or error.",
    "rate_limits": "Limit the rate of everybody's calls with status 429, as the Machines API does; default: in a fleet,"
    " and not of the root token's.",
    "trusted_proxies": "A network (CIDR) of proxies whose X-Forwarded-For says where a call comes from; may be"
    " repeated. Default none: a call comes from the address of its connection.",
    "advertise": "The address, without a port, at which other nodes reach this one: makes the node part of a fleet.",
    "peer_port": "The port of gossip (UDP and TCP); the API between nodes uses the next port. Default 4281,"
    " or the last value.",
    "labels": "A label of the node that orders may ask for, as KEY=VALUE; may be repeated.",
    "market": "A TOML file with the curves and weights that rank bids.",
    "catalog_listen": "HOST:PORT of the catalog's own HTTP API; off by default.",
    "catalog_url": "The URL of a Corrosion agent that replaces the built-in catalog.",
    "catalog_token_file": "A file with the token for the agent of --catalog-url.",
    "cpus": "How many cpus to sell; default all of the host.",
    "memory_mib": "How much memory to sell; default 95% of the host's.",
    "disk_mib": "How much disk to sell; default what is free where the data directory is, less --free-disk-floor-mib.",
    "shared_cpu_ratio": "How many shared cpus to sell per cpu.",
    "machine_disk_mib": "How much a machine may write to its root filesystem, unless its config says; 0: no limit. By"
    " default 8192, or a 32nd of the disk if that is less.",
    "free_disk_floor_mib": "How much disk is never sold.",
    "machine_pids": "How many processes a machine may have.",
    "max_machines": "How many machines the node may have, with those that are stopped.",
    "audit_mib": "How much of the audit log is kept, in DATA_DIR/audit; at least 16.",
    "container_suspend": "freeze: suspend containers in memory, by the kernel's freezer; refuse: suspend none.",
    "userns": "auto: each container has users and groups of the host for itself (a user namespace), where a trial"
    " shows that the kernel can; on: refuse to start where it cannot; off: root in a container is root of the host.",
    "userns_ids": "The ids of the host, FIRST-LAST, of which each machine gets 65536, and the edge and the resolver"
    " one each.",
    "launcher": "Who starts containers: hawker, its own launcher; crun; auto: its own, if a trial after each boot of"
    " the host finds that it isolates as crun does, else crun.",
    "vmm_overhead_mib": "How much memory a microVM's VMM may use beside the machine's own; default the driver's own"
    " figure.",
    "vm_disk_mib_per_s": "How much each disk of a microVM may read and write in a second; 0: no limit.",
    "vm_disk_operations_per_s": "How many reads and writes a second each disk of a microVM may do; 0: no limit.",
    "kernel": "The kernel that microVMs boot: a vmlinux or bzImage; default the newest imported one.",
    "gpu_devices": "A GPU that machines may have, as KIND=PCI-ADDRESS; may be repeated.",
    "max_volume_gb": "The largest volume, in GB (of 1024 MiB).",
    "volume_encryption": "required: refuse volumes that are to be encrypted where this host cannot; wished: make them"
    " without encryption there, for clients such as flyctl that always ask for it.",
    "allow_local_images": "Allow images from files of this host, to callers whose token may write the node as a whole.",
    "insecure_registries": "A registry to use over plain HTTP; may be repeated.",
    "private_registries": "A registry at a loopback or private address that every token may name; may be repeated.",
    "registry_auth_file": "Names and passwords for registries, as docker's config.json has them.",
    "max_layer_mib": "The largest layer, unpacked.",
    "max_image_mib": "The largest image, unpacked.",
    "max_import_mib": "The largest archive that may be uploaded.",
    "parallel_pulls": "How many images are pulled at once.",
    "egress_allow": "A network or address that machines may reach though it is withheld from them by default, or the"
    " word private; may be repeated.",
    "machine_connections": "How many connections a machine may have open that it began; 0: no limit.",
    "machine_connections_per_s": "How many connections a machine may begin in a second; 0: no limit.",
    "machine_packets_per_s": "How many packets a machine may send in a second; 0: no limit.",
    "machine_api": "Answer this API to machines, too, at _api.internal:4280, for tokens other than the root token;"
    " default: no.",
    "mesh": "Who carries packets between machines of two hosts: kernel or wireguard-go; auto: the first of them"
    " that works here; off: nobody.",
    "mesh_mtu": "How many bytes a packet between machines of two hosts has at most, from 1280; the same on all hosts.",
    "mesh_port": "The UDP port at which other hosts' packets arrive; default the port of gossip plus 2.",
    "wireguard_listen": "HOST:PORT at which people's own computers enter private networks over WireGuard: where they"
    " reach this node. It listens at that UDP port. Default: none enter.",
    "edge_addresses": "An address of the host at which machines may publish ports; may be repeated. Default: all on a"
    " node alone, none in a fleet; the word none: nowhere.",
    "edge_proxy_protocol_from": "A network (CIDR) of balancers whose connections to published ports begin with a PROXY"
    " protocol head (version 1 or 2) that says who the client is; may be repeated. Default none.",
    "floating_addresses": "A network of apps' addresses that move between the hosts of the region: each address is at"
    " one host at a time, and another host takes it over when that one is lost. The same on all of them; may be"
    " repeated.",
    "acme_directory": "The URL of the directory of a certificate authority (ACME) where certificates are ordered; you"
    " agree to its terms with this option. Default: none are ordered.",
    "acme_email": "Whom the certificate authority writes to.",
    "acme_ca_file": "PEM of the authority that vouches for the directory's own TLS; default those of the host.",
    "acme_binding_file": "A file with two words, the key id and the HMAC key, where the authority asks for an account"
    " that it gave out (external account binding).",
    "cert_ownership": "required: an app gets a host name only where the name's zone says that it is the app's (a TXT"
    " record, for example); first-come: whoever comes first has it.",
    "domain": "The domain of the platform, such as apps.example.com: apps are reached at NAME.DOMAIN.",
    "api_hostname": "A host name, such as api.example.com, at which the edge answers this API with TLS, at port 443 of"
    " each --edge-address. Its certificate is ordered at the --acme-directory, or imported (`hawker node certs`). The"
    " same on all nodes. Default: none.",
    "dns_zone_listen": "ADDRESS:PORT at which this node answers for the domain, as a name server that its parent zone"
    " leads to; may be repeated. With an --acme-directory the certificate of *.DOMAIN is ordered, too.",
    "idle_s": "After how many seconds without a request a machine is stopped or suspended, if its services ask for"
    " that (autostop).",
    "edge_drain_s": "How long WebSockets, raw connections and long answers may go on, in seconds, when a new version"
    " of the edge takes over; requests that end within 5 s do not need it.",
    "edge_processes": "How many processes serve published ports, 8 at most. More than one is for hosts with more TLS,"
    " HTTP/2 or bytes than one core can carry. See docs/edge.md.",
    "daemon_away_lost_s": "After how many seconds without its daemon a host that is up counts as lost. Default: never.",
    "adopt_deploys": "What becomes of a deploy that a client such as flyctl drove and left: the app's home finishes it,"
    " goes back to the release before it, or leaves it as it is.",
    "nameservers": "The IP address of a name server for names of the world, instead of the host's; may be repeated.",
    "resolver": "Answer machines' questions for names, those of their private network among them; default: yes."
    " Without it they ask the name servers themselves.",
    "ipv4_pool": "The network from which machines get IPv4 addresses.",
    "public_ipv4": "A network of IPv4 addresses, each for one app; may be repeated.",
    "public_ipv6": "A network of IPv6 addresses, each for one app; may be repeated.",
    "shared_ipv4": "The IPv4 address that apps share; default the host's own uplink address.",
    "logs_mib": "How much of its output each machine keeps.",
    "app_logs_mib": "How much of each app's log is kept, in DATA_DIR/logs.",
    "app_logs_kept_s": "How many seconds lines of an app's log are kept.",
    "log_endpoint": "Where lines of apps are sent, too: otlp+http://HOST:4318, loki+http://HOST:3100, or the http://"
    " URL of a program that takes lines of JSON, such as Vector; default nowhere.",
    "runs_kept": "How many ended runs are kept per machine.",
    "destroyed_kept_s": "How many seconds a destroyed machine's history is kept on the node.",
    "deleted_volumes_kept_s": "How many seconds undelete works for a deleted volume.",
    "volume_discards": "Once a day, return to the disk what was deleted in a volume (TRIM).",
    "archive": "Where histories of destroyed machines go: a directory or s3://BUCKET/PREFIX; default none.",
    "archive_endpoint": "The URL of an S3 service other than AWS.",
    "archive_region": "The region of the S3 bucket.",
    "backup_url": "Where backups of volumes go: a directory or s3://BUCKET/PREFIX; default none.",
    "backup_endpoint": "The URL of an S3 service other than AWS, for backups.",
    "backup_region": "The region of the S3 bucket of backups.",
    "backup_passphrase_file": "A file whose first line seals backups of volumes, and opens them on another host.",
    "backup_every_s": "Back volumes up this often, in seconds, 86400 for once a day; 0: only when told to.",
    "backup_window": "Begin these backups only between two times of a day in UTC, 01:00-05:30; default at any time.",
    "backup_keep_daily": "With --backup-every-s: of each volume, keep the last backup of this many days.",
    "backup_keep_weekly": "With --backup-every-s: of each volume, keep the last backup of this many weeks.",
    "backup_verify_percent": "Read this percentage of the backups' content each day and check it; 0: only when told"
    " to.",
    "reconcile_every_s": "Seconds between two comparisons of host and store.",
    "template": "Keep a process with everything imported, which forks the next daemon when this one is killed and holds"
    " the address meanwhile: a node is back sooner, and takes more memory.",
    "otel_endpoint": "Where spans of runs and steps are sent: the URL of an OpenTelemetry collector (OTLP over HTTP).",
    "watchdog_report_s": "Log the stack of the event loop when it is blocked for this many seconds; 0: never.",
    "watchdog_end_s": "End the daemon when its event loop is blocked for this many seconds; 0: never.",
}
"""The help of each setting; each has a flag."""

SINGULAR = {
    "edge_addresses": "edge-address",
    "edge_proxy_protocol_from": "edge-proxy-protocol-from",
    "floating_addresses": "floating-addresses",
    "dns_zone_listen": "dns-zone-listen",
    "egress_allow": "egress-allow",
    "insecure_registries": "insecure-registry",
    "gpu_devices": "gpu-device",
    "private_registries": "private-registry",
    "labels": "label",
    "nameservers": "nameserver",
    "public_ipv4": "public-ipv4",
    "public_ipv6": "public-ipv6",
    "trusted_proxies": "trusted-proxy",
}

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Settings)}

_HELP = """Run a node on this host. Prints one line, `ready URL`, once its API answers; logs go to stderr.

Every option can also be set as a variable (--data-dir as HAWKER_DATA_DIR) and in a TOML file (data_dir = "..."):
options win over variables, variables over the file. Ctrl-C stops the node and leaves its machines running.

\b
Examples:
  hawker up
  hawker up --data-dir ./node --listen 127.0.0.1:0 --ephemeral
"""


def _option(name: str, kind: object, *, hidden: bool) -> click.Option:
    said = HELP[name] + _default_said(name)
    flag = f"--{SINGULAR.get(name, name.replace('_', '-'))}"
    if bool in (get_args(kind) or (kind,)):
        return click.Option([f"{flag}/--no-{flag[2:]}", name], default=None, help=said, hidden=hidden)
    return click.Option([flag, name], metavar=_metavar(kind), multiple=name in SINGULAR, help=said, hidden=hidden)


def _default_said(name: str) -> str:
    """Of a number or a word, unless the help has said it."""
    default = _DEFAULTS[name]
    if default in (None, ()) or default is msgspec.NODEFAULT or "efault" in HELP[name]:
        return ""
    if isinstance(default, bool):
        return " Default: yes." if default else ""
    return f" Default {default:g}." if isinstance(default, float) else f" Default {default}."


def _metavar(kind: object) -> str:
    kinds = get_args(kind) or (kind,)
    if Path in kinds:
        return "PATH"
    return "N" if int in kinds or float in kinds else "TEXT"


def settings_of(config: Path | None, flags: Mapping[str, object]) -> Settings:
    """The settings of a command that has `settings_options`. Raises `CannotStart`."""
    given = {name: value for name, value in flags.items() if value is not None and value != ()}
    environ = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return load_settings(given, environ, config)


def settings_options(unused: Collection[str] = ()) -> list[click.Parameter]:
    """The options, one for each setting and one for the file of settings. Those that the command has no use for are
    taken and not shown."""
    file = click.Option(
        ["--config"],
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar="HAWKER_CONFIG",
        help="A TOML file of settings.",
    )
    kinds = get_type_hints(Settings)
    return [file, *(_option(name, kind, hidden=name in unused) for name, kind in kinds.items())]


def _run(config: Path | None, **flags: object) -> int:
    return up.run(settings_of(config, flags))


command = click.Command("up", callback=_run, help=_HELP, params=settings_options())

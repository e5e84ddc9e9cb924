"""All settings of a process in one frozen class, read once: flags over `HAWKER_*` variables over a TOML file over the
defaults. An unknown key or a value of the wrong type is an error that names it.
"""

import logging
import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec

from hawker.clock import OFFSET_VARIABLE
from hawker.deferred import deferred
from hawker.errors import CannotStart
from hawker.gpu import parse_gpus
from hawker.host_ids import id_bounds
from hawker.place import default_data_dir
from hawker.time_window import is_daily

if TYPE_CHECKING:
    import difflib
    import tomllib
else:
    difflib, tomllib = deferred("difflib"), deferred("tomllib")

_PREFIX = "HAWKER_"
_NOT_SETTINGS = frozenset(
    {"HAWKER_URL", "HAWKER_TOKEN", "HAWKER_APP", "HAWKER_CONFIG", "HAWKER_FAILPOINT", OFFSET_VARIABLE}
)
_NOT_SETTINGS_PREFIX = "HAWKER_GUEST_"  # of the package's build

LEAST_LAYER_MIB = 256
LEAST_BACKUP_EVERY_S = 600.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a node. Sizes are MiB, times seconds. `None` means: found out from the host. What a field does is
    said by its option of `hawker up`, its least value is in `LEAST`; docs/generated/settings.md has both, with the
    unit."""

    data_dir: Path
    listen: str = "127.0.0.1:4280"
    region: str = "local"
    driver: str | None = None
    ephemeral: bool = False
    log_level: str = "info"
    rate_limits: bool | None = None  # None: in a fleet, and not for the root token
    trusted_proxies: tuple[str, ...] = ()

    # the fleet: on when the node says where others reach it
    advertise: str | None = None
    peer_port: int | None = None
    labels: tuple[str, ...] = ()
    market: Path | None = None
    catalog_listen: str | None = None
    catalog_url: str | None = None
    catalog_token_file: Path | None = None

    # what is sold
    cpus: int | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None
    shared_cpu_ratio: float = 8.0
    machine_disk_mib: int | None = None
    free_disk_floor_mib: int = 512
    machine_pids: int = 4096
    max_machines: int = 16_384
    audit_mib: int = 256
    container_suspend: Literal["freeze", "refuse"] = "freeze"
    userns: Literal["auto", "on", "off"] = "auto"
    userns_ids: str = "1073741824-1879048191"
    launcher: Literal["auto", "hawker", "crun"] = "auto"
    vmm_overhead_mib: int | None = None
    vm_disk_mib_per_s: int = 0
    vm_disk_operations_per_s: int = 0
    kernel: Path | None = None
    gpu_devices: tuple[str, ...] = ()
    max_volume_gb: int = 500
    volume_encryption: Literal["required", "wished"] = "required"

    # images
    allow_local_images: bool = False
    insecure_registries: tuple[str, ...] = ()
    private_registries: tuple[str, ...] = ()
    registry_auth_file: Path | None = None
    max_layer_mib: int = 10_240
    max_image_mib: int = 20_480
    max_import_mib: int = 8_192
    parallel_pulls: int = 3

    # what machines may send
    egress_allow: tuple[str, ...] = ()
    machine_connections: int = 8_192
    machine_connections_per_s: int = 500
    machine_packets_per_s: int = 100_000
    machine_api: bool = False

    # machines of other hosts: who carries their packets, how many bytes a packet has, where others' arrive
    mesh: Literal["auto", "kernel", "wireguard-go", "off"] = "auto"
    mesh_mtu: int = 1420
    mesh_port: int | None = None
    wireguard_listen: str | None = None

    # what clients reach: published ports
    edge_addresses: tuple[str, ...] = ()
    edge_proxy_protocol_from: tuple[str, ...] = ()
    floating_addresses: tuple[str, ...] = ()
    acme_directory: str | None = None
    acme_email: str | None = None
    acme_ca_file: Path | None = None
    acme_binding_file: Path | None = None
    cert_ownership: Literal["first-come", "required"] = "first-come"
    domain: str | None = None
    api_hostname: str | None = None
    dns_zone_listen: tuple[str, ...] = ()
    idle_s: float = 300.0
    edge_drain_s: float = 600.0
    edge_processes: int = 1

    # how the fleet judges nodes
    daemon_away_lost_s: float | None = None

    # deploys that a client drives by itself, when it is gone
    adopt_deploys: Literal["finish", "back", "off"] = "finish"

    # machines
    nameservers: tuple[str, ...] = ()
    resolver: bool = True
    ipv4_pool: str = "172.29.0.0/16"
    public_ipv4: tuple[str, ...] = ()
    public_ipv6: tuple[str, ...] = ()
    shared_ipv4: str | None = None
    logs_mib: int = 8
    app_logs_mib: int = 256
    app_logs_kept_s: float = 86_400.0
    log_endpoint: str | None = None
    runs_kept: int = 50
    destroyed_kept_s: float = 86_400.0
    deleted_volumes_kept_s: float = 86_400.0
    volume_discards: bool = True
    archive: str | None = None
    archive_endpoint: str | None = None
    archive_region: str | None = None
    backup_url: str | None = None
    backup_endpoint: str | None = None
    backup_region: str | None = None
    backup_passphrase_file: Path | None = None
    backup_every_s: float = 0.0
    backup_window: str | None = None
    backup_keep_daily: int = 7
    backup_keep_weekly: int = 4
    backup_verify_percent: float = 5.0
    reconcile_every_s: float = 60.0

    template: bool = False

    # how it is watched; 0 switches a part of the watchdog off
    otel_endpoint: str | None = None
    watchdog_report_s: float = 1.0
    watchdog_end_s: float = 30.0

    def __post_init__(self) -> None:
        """Raises `ValueError` naming the key; msgspec makes it its own."""
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        _check_words(self)
        _check_pool(self.ipv4_pool)
        id_bounds(self.userns_ids)
        _check_public(self)
        _check_networks("trusted_proxies", self.trusted_proxies)
        _check_networks("edge_proxy_protocol_from", self.edge_proxy_protocol_from)
        _check_networks("floating_addresses", self.floating_addresses)
        _check_log_endpoint(self.log_endpoint)
        _check_agent(self.catalog_url)
        _check_gpus(self.gpu_devices)
        _check_egress(self.egress_allow)
        _check_edge(self.edge_addresses, self.edge_processes)
        _check_zone(self)
        _check_api_hostname(self)
        _check_gateway(self.wireguard_listen)
        _check_backups(self)

    @property
    def proxies(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of `trusted_proxies`."""
        return tuple(ip_network(text) for text in self.trusted_proxies)

    @property
    def layer_mib(self) -> int:
        """The size of a root filesystem whose machine asks for none. 0: none has a size."""
        return LEAST_LAYER_MIB if self.machine_disk_mib is None else self.machine_disk_mib

    @property
    def published_at(self) -> tuple[str, ...]:
        """The addresses of `edge_addresses`: unless they say so, all on a node alone, and none in a fleet."""
        if not self.edge_addresses:
            return EVERY_ADDRESS if self.advertise is None else ()
        return () if self.edge_addresses == (NOWHERE,) else self.edge_addresses

    @property
    def answers_zone(self) -> bool:
        """Whether this node is a name server of the platform's domain."""
        return self.domain is not None and bool(self.dns_zone_listen)

    @property
    def own_hostnames(self) -> tuple[str, ...]:
        """The host names for which the platform itself orders certificates."""
        wide, name = (f"*.{self.domain}",) if self.answers_zone else (), self.api_hostname
        return wide if name is None or f"*.{name.partition('.')[2]}" in wide else (*wide, name)

    @property
    def shared_addresses(self) -> tuple[str, ...]:
        """The addresses at which apps without an address of their own are reached from outside, as far as they are
        known."""
        if self.shared_ipv4 is not None:
            return (self.shared_ipv4,)
        return tuple(each for each in self.published_at if not ip_address(each).is_unspecified)

    @property
    def listed_registries(self) -> frozenset[str]:
        """The registries that anybody may name, wherever they are."""
        return frozenset((*self.insecure_registries, *self.private_registries))


def load_settings(flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None) -> Settings:
    """Merge the four sources. Raises `CannotStart` naming the source and the key."""
    merged: dict[str, Any] = {"data_dir": str(default_data_dir())}
    if file is not None:
        merged |= _read_file(file)
    merged |= _from_environment(environ) | {key: value for key, value in flags.items() if value is not None}
    try:
        settings = msgspec.convert(merged, Settings, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise CannotStart(f"setting refused: {_plain(str(error), merged)}") from error
    return msgspec.structs.replace(settings, data_dir=settings.data_dir.expanduser().resolve())


_OF_KIND = {"bool": "is neither true nor false", "int": "is not a whole number", "float": "is not a number"}


def _plain(text: str, given: Mapping[str, object]) -> str:
    """What msgspec says of a key or of a value's type, in words for people; its own words for anything else."""
    if unknown := re.fullmatch(r"Object contains unknown field `(\w+)`", text):
        near = difflib.get_close_matches(unknown[1], Settings.__struct_fields__, 1)
        return f"there is no setting {unknown[1]}" + "".join(f", did you mean {name}?" for name in near)
    if not (found := re.fullmatch(r"(?:Expected `(\w+)[^`]*`, got .*|Invalid enum value .*) - at `\$\.(\w+)`", text)):
        return text
    kind, key = found[1], found[2]
    words = ", ".join(map(str, get_args(get_type_hints(Settings)[key])))
    why = _OF_KIND.get(kind, text) if kind else f"is none of {words}"
    return f"{key} {given[key]!r} {why}"


def _path(kind: type, value: object) -> object:
    return Path(str(value)) if kind is Path else value


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CannotStart(f"cannot read the settings file {file}: {error}") from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in environ.items():
        if name.startswith(_PREFIX) and name not in _NOT_SETTINGS and not name.startswith(_NOT_SETTINGS_PREFIX):
            key = name.removeprefix(_PREFIX).lower()
            if value.strip() or key not in Settings.__struct_fields__:  # an empty one is as good as not set
                found[key] = [each for part in value.split(",") if (each := part.strip())] if key in _LISTS else value
    return found


_LISTS = frozenset(field.name for field in msgspec.structs.fields(Settings) if field.type == tuple[str, ...])

LEAST: Mapping[str, float] = {
    "peer_port": 1,
    "mesh_mtu": 1280,
    "mesh_port": 1,
    "cpus": 1,
    "memory_mib": 1,
    "disk_mib": 1,
    "shared_cpu_ratio": 1,
    "machine_disk_mib": 0,
    "free_disk_floor_mib": 0,
    "machine_pids": 1,
    "max_machines": 1,
    "audit_mib": 16,
    "machine_connections": 0,
    "machine_connections_per_s": 0,
    "machine_packets_per_s": 0,
    "vmm_overhead_mib": 1,
    "vm_disk_mib_per_s": 0,
    "vm_disk_operations_per_s": 0,
    "max_volume_gb": 1,
    "backup_every_s": 0,
    "backup_keep_daily": 0,
    "backup_keep_weekly": 0,
    "backup_verify_percent": 0,
    "idle_s": 1,
    "edge_drain_s": 0,
    "edge_processes": 1,
    "daemon_away_lost_s": 10,
    "max_layer_mib": 1,
    "max_image_mib": 1,
    "max_import_mib": 1,
    "parallel_pulls": 1,
    "logs_mib": 1,
    "app_logs_mib": 1,
    "app_logs_kept_s": 60,
    "runs_kept": 1,
    "destroyed_kept_s": 0,
    "deleted_volumes_kept_s": 0,
    "reconcile_every_s": 1,
    "watchdog_report_s": 0,
    "watchdog_end_s": 0,
}
"""The least value of each setting that is a number."""
_SMALLEST_POOL = 28


_REGION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")


def _check_words(settings: Settings) -> None:
    if settings.log_level.upper() not in logging.getLevelNamesMapping():
        raise ValueError(f"log_level {settings.log_level!r} is none of debug, info, warning and error")
    if not _REGION.fullmatch(settings.region):  # a part of names of machines, and of lists of regions
        raise ValueError(f"region {settings.region!r} is not a name of letters, digits and dashes, such as mad")
    if settings.otel_endpoint is not None and not _is_url(settings.otel_endpoint):
        raise ValueError(f"otel_endpoint {settings.otel_endpoint!r} is not a URL such as http://127.0.0.1:4318")
    if (url := settings.acme_directory) is not None and not (_is_url(url) and url.startswith("https:")):
        raise ValueError(f"acme_directory {url!r} is no https:// URL")
    for text in settings.nameservers:
        if not _is_address(text):
            raise ValueError(f"nameservers {text!r} is not an IP address")


def _is_address(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def _check_pool(text: str) -> None:
    try:
        pool = IPv4Network(text)
    except ValueError as error:
        raise ValueError(f"ipv4_pool {text!r} is not an IPv4 network such as 172.29.0.0/16: {error}") from error
    if pool.prefixlen > _SMALLEST_POOL:
        raise ValueError(f"ipv4_pool {text!r} is smaller than a /{_SMALLEST_POOL}")


def _check_networks(name: str, texts: tuple[str, ...]) -> None:
    for text in texts:
        try:
            ip_network(text)
        except ValueError as error:
            raise ValueError(f"{name} {text!r} is not a network such as 10.0.0.0/24: {error}") from error


def _check_public(settings: Settings) -> None:
    """Pools of addresses for apps, and the address that apps share."""
    for name, kind in (("public_ipv4", IPv4Network), ("public_ipv6", IPv6Network)):
        known: list[IPv4Network | IPv6Network] = []
        for text in getattr(settings, name):
            try:
                pool = kind(text)
            except ValueError as error:
                raise ValueError(f"{name} {text!r} is not a network such as {_SUCH_AS[name]}: {error}") from error
            if any(pool.overlaps(other) for other in known):
                raise ValueError(f"{name} {text!r} has addresses that another of its networks has")
            known.append(pool)
    if settings.shared_ipv4 is not None:
        try:
            IPv4Address(settings.shared_ipv4)
        except ValueError as error:
            raise ValueError(f"shared_ipv4 {settings.shared_ipv4!r} is not an IPv4 address") from error


_SUCH_AS = {"public_ipv4": "203.0.113.0/28", "public_ipv6": "2001:db8:1::/64"}

NOWHERE = "none"
"""The only value of `edge_addresses` with which no port is published."""
EVERY_ADDRESS = ("0.0.0.0", "::")


_PLACE = re.compile(r"[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_DOMAIN = re.compile(r"(?=.{3,190}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def _check_zone(settings: Settings) -> None:
    if settings.domain is not None and not _DOMAIN.fullmatch(settings.domain):
        raise ValueError(f"domain {settings.domain!r} is not a domain such as apps.example.com, in lower case")
    for place in settings.dns_zone_listen:
        address, _, port = place.rpartition(":")
        if not (_is_address(address.strip("[]")) and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError(f"dns_zone_listen {place!r} is not ADDRESS:PORT")
    if settings.dns_zone_listen and settings.domain is None:
        raise ValueError("dns_zone_listen needs domain: the zone that is answered there")


def _check_api_hostname(settings: Settings) -> None:
    if (name := settings.api_hostname) is None:
        return
    if not _DOMAIN.fullmatch(name):
        raise ValueError(f"api_hostname {name!r} is not a host name such as api.example.com, in lower case")
    if not settings.published_at:
        raise ValueError("api_hostname needs edge_addresses: where the edge of this host takes calls")


def _check_gateway(place: str | None) -> None:
    host, _, port = (place or "gateway.example.com:51820").rpartition(":")
    if not host or not _PLACE.fullmatch(host) or not (port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"wireguard_listen {place!r} is not HOST:PORT, where peers reach this node")


MAX_EDGE_PROCESSES = 8


def _check_edge(texts: tuple[str, ...], processes: int) -> None:
    if processes > MAX_EDGE_PROCESSES:
        raise ValueError(f"edge_processes must be at most {MAX_EDGE_PROCESSES}, not {processes}")
    for text in texts:
        if texts != (NOWHERE,) and not _is_address(text):
            raise ValueError(f"edge_addresses {text!r} is neither {NOWHERE!r} alone nor an address")


PRIVATE_NETWORKS = "private"
"""The word in `egress_allow` that stands for all private ranges."""


def _check_egress(texts: tuple[str, ...]) -> None:
    for text in texts:
        try:
            if text != PRIVATE_NETWORKS:
                ip_network(text)
        except ValueError as error:
            raise ValueError(
                f"egress_allow {text!r} is neither {PRIVATE_NETWORKS!r} nor a network such as 10.1.0.0/16: {error}"
            ) from error


def _check_gpus(texts: tuple[str, ...]) -> None:
    try:
        parse_gpus(texts)
    except ValueError as error:
        raise ValueError(f"gpu_devices {error}") from error


def _check_backups(settings: Settings) -> None:
    if settings.backup_url is not None and settings.backup_passphrase_file is None:
        raise ValueError("backup_url needs backup_passphrase_file: backups are sealed under a passphrase")
    if settings.backup_every_s and settings.backup_url is None:
        raise ValueError("backup_every_s needs backup_url: where backups go")
    if 0 < settings.backup_every_s < LEAST_BACKUP_EVERY_S:
        raise ValueError(f"backup_every_s must be 0 or at least {LEAST_BACKUP_EVERY_S:g}")
    if settings.backup_verify_percent > 100:
        raise ValueError("backup_verify_percent must be at most 100")
    if settings.backup_window is not None and not is_daily(settings.backup_window):
        raise ValueError("backup_window is not two times of a day in UTC such as 01:00-05:30")


LOG_NOTATIONS = ("", "otlp+", "loki+")


def _check_log_endpoint(text: str | None) -> None:
    if text is None:
        return
    scheme, _, rest = text.partition("://")
    notation = f"{scheme.rpartition('+')[0]}+" if "+" in scheme else ""
    if notation not in LOG_NOTATIONS or not _is_url(f"{scheme.rpartition('+')[2]}://{rest}"):
        raise ValueError("log_endpoint is not a URL such as http://127.0.0.1:8080, otlp+http://... or loki+http://...")


def _check_agent(text: str | None) -> None:
    """A password in it is not repeated."""
    if text is None:
        return
    if not _is_url(text):
        raise ValueError(f"catalog_url {text!r} is not a URL such as http://127.0.0.1:8080, the agent's api.addr")
    url = urlsplit(text)
    if url.username is not None or url.query or url.fragment:
        raise ValueError("catalog_url is to have a host and a port only; a token goes into catalog_token_file")


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        at = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False
    return at and text.isascii() and text.isprintable() and " " not in text

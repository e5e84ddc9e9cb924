"""All settings of a process in one frozen class, read once: flags over `HAWKER_*` variables over a TOML file over the
defaults. An unknown key or a value of the wrong type is an error that names it.
"""

import os
import tomllib
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from hawker.clock import OFFSET_VARIABLE
from hawker.errors import CannotStart
from hawker.gpu import parse_gpus

_PREFIX = "HAWKER_"
_NOT_SETTINGS = frozenset(
    {"HAWKER_URL", "HAWKER_TOKEN", "HAWKER_APP", "HAWKER_CONFIG", "HAWKER_FAILPOINT", OFFSET_VARIABLE}
)
_NOT_SETTINGS_PREFIX = "HAWKER_GUEST_"  # of the package's build


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a node. Sizes are MiB, times seconds. `None` means: found out from the host."""

    data_dir: Path
    listen: str = "127.0.0.1:4280"
    region: str = "local"
    driver: str | None = None
    ephemeral: bool = False
    log_level: str = "info"
    rate_limits: bool = True

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
    machine_disk_mib: int = 256
    free_disk_floor_mib: int = 512
    machine_pids: int = 4096
    container_suspend: Literal["freeze", "refuse"] = "freeze"
    vmm_overhead_mib: int | None = None
    vm_disk_mib_per_s: int = 0
    vm_disk_operations_per_s: int = 0
    kernel: Path | None = None
    gpu_devices: tuple[str, ...] = ()
    max_volume_gb: int = 500

    # images
    allow_local_images: bool = True
    insecure_registries: tuple[str, ...] = ()
    registry_auth_file: Path | None = None
    max_layer_mib: int = 10_240
    max_image_mib: int = 20_480
    max_import_mib: int = 8_192
    parallel_pulls: int = 3

    # machines
    nameservers: tuple[str, ...] = ()
    ipv4_pool: str = "172.29.0.0/16"
    public_ipv4: tuple[str, ...] = ()
    public_ipv6: tuple[str, ...] = ()
    shared_ipv4: str | None = None
    logs_mib: int = 8
    runs_kept: int = 50
    destroyed_kept_s: float = 86_400.0
    deleted_volumes_kept_s: float = 86_400.0
    archive: str | None = None
    archive_endpoint: str | None = None
    archive_region: str | None = None
    reconcile_every_s: float = 60.0

    # how it is watched; 0 switches a part of the watchdog off
    otel_endpoint: str | None = None
    watchdog_report_s: float = 1.0
    watchdog_end_s: float = 30.0

    def __post_init__(self) -> None:
        """Raises `ValueError` naming the key; msgspec makes it its own."""
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        _check_pool(self.ipv4_pool)
        _check_public(self)
        _check_endpoint(self.otel_endpoint)
        _check_gpus(self.gpu_devices)


def default_data_dir() -> Path:
    """`/var/lib/hawker` for root, else below the user's data directory."""
    if os.geteuid() == 0:
        return Path("/var/lib/hawker")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "hawker"


def load_settings(flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None) -> Settings:
    """Merge the four sources. Raises `CannotStart` naming the source and the key."""
    merged: dict[str, Any] = {"data_dir": str(default_data_dir())}
    if file is not None:
        merged |= _read_file(file)
    merged |= _from_environment(environ)
    merged |= {key: value for key, value in flags.items() if value is not None}
    try:
        settings = msgspec.convert(merged, Settings, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise CannotStart(f"setting refused: {error}") from error
    return msgspec.structs.replace(settings, data_dir=settings.data_dir.expanduser().absolute())


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
            found[key] = value.split(",") if key in _LISTS else value
    return found


_LISTS = frozenset({"gpu_devices", "insecure_registries", "labels", "nameservers", "public_ipv4", "public_ipv6"})

_LEAST: Mapping[str, float] = {
    "peer_port": 1,
    "cpus": 1,
    "memory_mib": 1,
    "disk_mib": 1,
    "shared_cpu_ratio": 1,
    "machine_disk_mib": 0,
    "free_disk_floor_mib": 0,
    "machine_pids": 1,
    "vmm_overhead_mib": 1,
    "vm_disk_mib_per_s": 0,
    "vm_disk_operations_per_s": 0,
    "max_volume_gb": 1,
    "max_layer_mib": 1,
    "max_image_mib": 1,
    "max_import_mib": 1,
    "parallel_pulls": 1,
    "logs_mib": 1,
    "runs_kept": 1,
    "destroyed_kept_s": 0,
    "deleted_volumes_kept_s": 0,
    "reconcile_every_s": 1,
    "watchdog_report_s": 0,
    "watchdog_end_s": 0,
}
_SMALLEST_POOL = 28


def _check_pool(text: str) -> None:
    try:
        pool = IPv4Network(text)
    except ValueError as error:
        raise ValueError(f"ipv4_pool {text!r} is not an IPv4 network such as 172.29.0.0/16: {error}") from error
    if pool.prefixlen > _SMALLEST_POOL:
        raise ValueError(f"ipv4_pool {text!r} is smaller than a /{_SMALLEST_POOL}")


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


def _check_gpus(texts: tuple[str, ...]) -> None:
    try:
        parse_gpus(texts)
    except ValueError as error:
        raise ValueError(f"gpu_devices {error}") from error


def _check_endpoint(text: str | None) -> None:
    if text is None:
        return
    try:
        url = urlsplit(text)
        known = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"otel_endpoint {text!r} is not a URL such as http://127.0.0.1:4318")

"""The whole config of a machine, with every field that the Machines API knows, so that each one is understood."""

from typing import Literal

from hawker.config.check import MachineCheck
from hawker.config.containers import Container
from hawker.config.guest import Guest, Spot
from hawker.config.network import DnsConfig, Metrics, Static
from hawker.config.part import Part
from hawker.config.process import File, Init, MachineProcess, MachineRestart, StopConfig
from hawker.config.services import Service
from hawker.config.storage import CacheDrive, ContainerVolume, Mount, RootfsConfig


class MachineConfig(Part, frozen=True, kw_only=True):
    """What a user orders. A field that is understood but not served yet is refused by name, never dropped."""

    image: str | None = None
    env: dict[str, str] | None = None
    init: Init | None = None
    guest: Guest | None = None
    size: str | None = None
    metadata: dict[str, str] | None = None
    files: tuple[File, ...] | None = None
    processes: tuple[MachineProcess, ...] | None = None
    checks: dict[str, MachineCheck] | None = None
    restart: MachineRestart | None = None
    stop_config: StopConfig | None = None
    auto_destroy: bool | None = None
    services: tuple[Service, ...] | None = None
    mounts: tuple[Mount, ...] | None = None
    rootfs: RootfsConfig | None = None
    cache_drive: CacheDrive | None = None
    containers: tuple[Container, ...] | None = None
    volumes: tuple[ContainerVolume, ...] | None = None
    schedule: Literal["hourly", "daily", "weekly", "monthly"] | None = None
    standbys: tuple[str, ...] | None = None
    dns: DnsConfig | None = None
    metrics: Metrics | None = None
    statics: tuple[Static, ...] | None = None
    spot: Spot | None = None
    disable_machine_autostart: bool | None = None

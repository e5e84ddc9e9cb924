"""The shape of what a machine stores its data on. Field meanings: contract section 2."""

from typing import Literal

from hawker.config.part import Part


class Mount(Part, frozen=True, kw_only=True):
    volume: str | None = None
    name: str | None = None
    path: str | None = None
    size_gb: int | None = None
    encrypted: bool | None = None
    extend_threshold_percent: int | None = None
    add_size_gb: int | None = None
    add_size_percent: int | None = None
    min_add_size_gb: int | None = None
    size_gb_limit: int | None = None


class TempDir(Part, frozen=True, kw_only=True):
    storage_type: Literal["disk", "memory"] | None = None
    size_mb: int | None = None


class ContainerVolume(Part, frozen=True, kw_only=True):
    """A volume shared by the containers of one machine."""

    name: str | None = None
    temp_dir: TempDir | None = None
    image: str | None = None


class RootfsConfig(Part, frozen=True, kw_only=True):
    persist: Literal["never", "restart", "always"] | None = None
    size_gb: int | None = None


class CacheDrive(Part, frozen=True, kw_only=True):
    size_mb: int | None = None

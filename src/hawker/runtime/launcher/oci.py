"""The part of the runtime specification's config.json that the launcher can carry out, as types. What is not in them
cannot be decoded, so nothing that a bundle asks for is ever left out silently: such a machine is crun's.
"""

from typing import Literal

import msgspec


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    pass


class OciIdMap(_Strict, frozen=True, kw_only=True, rename={"container_id": "containerID", "host_id": "hostID"}):
    """`size` ids from `container_id` on are those from `host_id` on of the host."""

    container_id: int
    host_id: int
    size: int


class OciMount(_Strict, frozen=True, kw_only=True):
    """`options` are those of mount(8), with what belongs to the filesystem itself among them."""

    destination: str
    type: str
    source: str
    options: tuple[str, ...] = ()
    uid_mappings: tuple[OciIdMap, ...] = ()
    gid_mappings: tuple[OciIdMap, ...] = ()


class OciRoot(_Strict, frozen=True, kw_only=True):
    path: str
    readonly: bool = False


class OciUser(_Strict, frozen=True, kw_only=True):
    uid: Literal[0]
    gid: Literal[0]


class OciRlimit(_Strict, frozen=True, kw_only=True):
    type: str
    soft: int
    hard: int


class OciCapabilities(_Strict, frozen=True, kw_only=True):
    bounding: tuple[str, ...] = ()
    effective: tuple[str, ...] = ()
    permitted: tuple[str, ...] = ()
    inheritable: tuple[str, ...] = ()
    ambient: tuple[str, ...] = ()


class OciProcess(_Strict, frozen=True, kw_only=True):
    args: tuple[str, ...]
    user: OciUser
    capabilities: OciCapabilities
    terminal: Literal[False] = False
    cwd: Literal["/"] = "/"
    env: tuple[str, ...] = ()
    rlimits: tuple[OciRlimit, ...] = ()
    no_new_privileges: bool = False
    oom_score_adj: int | None = None
    apparmor_profile: str = ""


class OciCpu(_Strict, frozen=True, kw_only=True):
    period: int
    quota: int
    shares: int


class OciMemory(_Strict, frozen=True, kw_only=True):
    """Bytes; `swap` is memory and swap together."""

    limit: int
    swap: int


class OciPids(_Strict, frozen=True, kw_only=True):
    limit: int


class OciDeviceRule(_Strict, frozen=True, kw_only=True):
    """None of a number: every one."""

    allow: bool
    access: str
    type: Literal["a", "b", "c"] = "a"
    major: int | None = None
    minor: int | None = None


class OciResources(_Strict, frozen=True, kw_only=True):
    cpu: OciCpu
    memory: OciMemory
    pids: OciPids
    devices: tuple[OciDeviceRule, ...] = ()


class OciNamespace(_Strict, frozen=True, kw_only=True):
    """With a path: that one is entered; only a network can be."""

    type: Literal["pid", "ipc", "uts", "mount", "cgroup", "network", "user"]
    path: str | None = None


class OciCallArgument(_Strict, frozen=True, kw_only=True):
    index: int
    value: int
    op: str
    value_two: int = 0


class OciCallRule(_Strict, frozen=True, kw_only=True):
    names: tuple[str, ...]
    action: str
    errno_ret: int | None = None
    args: tuple[OciCallArgument, ...] = ()
    comment: str = ""


class OciSeccomp(_Strict, frozen=True, kw_only=True):
    default_action: str
    default_errno_ret: int | None = None
    architectures: tuple[str, ...] = ()
    syscalls: tuple[OciCallRule, ...] = ()


class OciLinux(_Strict, frozen=True, kw_only=True):
    cgroups_path: str
    resources: OciResources
    namespaces: tuple[OciNamespace, ...]
    seccomp: msgspec.Raw  # an `OciSeccomp`, decoded once for each profile
    masked_paths: tuple[str, ...] = ()
    readonly_paths: tuple[str, ...] = ()
    uid_mappings: tuple[OciIdMap, ...] = ()
    gid_mappings: tuple[OciIdMap, ...] = ()


class OciConfig(_Strict, frozen=True, kw_only=True):
    oci_version: str
    root: OciRoot
    process: OciProcess
    mounts: tuple[OciMount, ...]
    linux: OciLinux
    hostname: str = ""

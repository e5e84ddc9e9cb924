"""The config of a machine: what a user orders, in the words of the Machines API (contract section 2).

A config is stored and returned as given. An absent field and an explicit null mean the same and are returned absent; an
integer duration (nanoseconds) is returned as its string. Nothing else is added, dropped or reordered. The structs hold
the shape, `rules` says what is acceptable, `effective` works out what a config means with its defaults.
"""

from hawker.config.effective import (
    PUBLISH,
    Check,
    Persist,
    Size,
    checks,
    file_contents,
    guest,
    persistence,
    restart_policy,
    stop_config,
    with_guest,
)
from hawker.config.machine import (
    Container,
    EnvFrom,
    File,
    Guest,
    HttpHeader,
    Init,
    MachineCheck,
    MachineConfig,
    MachineProcess,
    MachineRestart,
    MachineSecret,
    Service,
    StopConfig,
)
from hawker.config.rules import Served, complaints, validate, validate_metadata, validate_served

__all__ = [
    "PUBLISH",
    "Check",
    "Container",
    "EnvFrom",
    "File",
    "Guest",
    "HttpHeader",
    "Init",
    "MachineCheck",
    "MachineConfig",
    "MachineProcess",
    "MachineRestart",
    "MachineSecret",
    "Persist",
    "Served",
    "Service",
    "Size",
    "StopConfig",
    "checks",
    "complaints",
    "file_contents",
    "guest",
    "persistence",
    "restart_policy",
    "stop_config",
    "validate",
    "validate_metadata",
    "validate_served",
    "with_guest",
]

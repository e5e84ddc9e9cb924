"""What the steps of every flow are given."""

from typing import TypeAlias, TypeVar

import msgspec

from hawker.api.caller import LateCaller
from hawker.archive.archive import Archive
from hawker.clock import Clock
from hawker.fsm.contract import StepContext
from hawker.image.cache import ImageCache
from hawker.logs.machine_logs import MachineLogs
from hawker.netpolicy.policies import Fences
from hawker.record.machine import MachineRecord, machine_id_of
from hawker.runtime.driver import NodeDriver
from hawker.secret.certificates import Certificates
from hawker.secret.registry_logins import RegistryLogins
from hawker.secret.secret_keys import SecretKeyStore
from hawker.secret.secrets import Secrets
from hawker.settings import Settings
from hawker.store.contract import Store, Tx
from hawker.value_object import ValueObject
from hawker.volume.disks import Backups, Copies, Disks
from hawker.volume.encryption import VolumeKeys
from hawker.volume.moved_files import MovedFiles
from hawker.volume.table import VolumeTable
from hawker.worker.app_files import AppFiles
from hawker.worker.edge_line import EdgeLine
from hawker.worker.lifecycle.host_adapters import Devices, Networks, Rootfs
from hawker.worker.other_nodes import LateNodes, LateRuns
from hawker.worker.table import MachineTable

I = TypeVar("I", bound=msgspec.Struct)  # noqa: E741 - a flow's input


class FlowDeps(ValueObject, frozen=True):
    """`rootfs` and `networks` are None for drivers that use the host's own; `archive` where histories are not kept,
    `disks` and `copies` where there are no volumes, `backups` where they go nowhere, `gpus` where the node has none,
    `logs` where none are kept; `files`, what was uploaded for machines, where no such files are. `fleet` answers every
    call that a client may make, once the node answers; `others` are the other nodes, `moved_files` what moves do with
    volumes' files. `runs` begins runs of the worker."""

    store: Store
    table: MachineTable
    images: ImageCache
    driver: NodeDriver
    rootfs: Rootfs | None
    networks: Networks | None
    settings: Settings
    clock: Clock
    secrets: Secrets
    secret_keys: SecretKeyStore
    certificates: Certificates
    logins: RegistryLogins
    fences: Fences
    volumes: VolumeTable
    archive: Archive | None = None
    disks: Disks | None = None
    copies: Copies | None = None
    volume_keys: VolumeKeys | None = None
    backups: Backups | None = None
    gpus: Devices | None = None
    edge: EdgeLine = msgspec.field(default_factory=EdgeLine)
    logs: MachineLogs | None = None
    files: AppFiles | None = None
    fleet: LateCaller = msgspec.field(default_factory=LateCaller)
    moved_files: MovedFiles | None = None
    others: LateNodes = msgspec.field(default_factory=LateNodes)
    runs: LateRuns = msgspec.field(default_factory=LateRuns)


Context: TypeAlias = StepContext[FlowDeps, I]


def machine_of(context: StepContext[FlowDeps, msgspec.Struct]) -> MachineRecord:
    """The record as last committed. Raises `NotFound`. Inside a commit, ask the transaction instead."""
    return context.deps.table.get(context.deps.store, machine_id_of(context))


async def drain_output(context: StepContext[FlowDeps, msgspec.Struct], next_instance: str = "") -> None:
    """Before the machine's output goes, with all that it has or for the next instance: its app's log has it all."""
    if context.deps.logs is not None:
        await context.deps.logs.drain(machine_id_of(context), next_instance)


def machine_in(tx: Tx, context: StepContext[FlowDeps, msgspec.Struct]) -> MachineRecord:
    """The record as the transaction sees it; for commits, which run in the store's writer."""
    return context.deps.table.get(tx, machine_id_of(context))

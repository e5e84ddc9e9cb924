"""Records as the API shows them."""

from hawker.api.contract.app import App, Organization
from hawker.api.contract.body import instant
from hawker.api.contract.machine import (
    CheckStatus,
    ContainerStatus,
    EventRequest,
    ExitEvent,
    ImageRef,
    LeaseInfo,
    Machine,
    MachineEvent,
    MachineVersion,
)
from hawker.api.contract.machine_operation import LeaseAnswer, LeaseData, lease_answer
from hawker.config import with_guest
from hawker.ids import NodeId
from hawker.record.app import AppRecord
from hawker.record.machine import CheckResult, Detail, EventRecord, Lease, MachineRecord, VersionRecord, current_lease


def app(record: AppRecord, machines: int, volumes: int) -> App:
    return App(
        id=record.id,
        internal_numeric_id=record.number,
        name=record.name,
        network=record.network,
        status="deployed" if machines else "pending",
        machine_count=machines,
        volume_count=volumes,
        organization=Organization(name=record.org, slug=record.org, internal_numeric_id=1),
        created_at=int(record.created_at * 1000),
    )


def machine(
    record: MachineRecord,
    events: list[EventRecord],
    checks: tuple[CheckResult, ...],
    *,
    nonce: str | None = None,
    lease_at: float | None = None,
    containers: tuple[ContainerStatus, ...] = (),
    host: NodeId | None = None,
) -> Machine:
    """`nonce` only for the answer of a create or update that took a lease; `lease_at` shows the lease held then;
    `containers` are names and states."""
    image = record.image
    lease = current_lease(record, lease_at) if lease_at is not None else None
    return Machine(
        id=record.id,
        name=record.name,
        state=record.state,
        region=record.region,
        image_ref=ImageRef(registry=image.registry, repository=image.repository, tag=image.tag, digest=image.digest),
        instance_id=record.version,
        version=record.version,
        private_ip=record.network.private_ip,
        created_at=instant(record.created_at),
        updated_at=instant(record.updated_at),
        host_status="ok",
        host=host,
        config=with_guest(record.config),
        events=tuple(map(event, events)),
        checks=tuple(map(check, checks)),
        containers=containers,
        cordoned=record.cordoned,
        nonce=nonce,
        lease=None
        if lease is None
        else LeaseInfo(description=lease.description, expires_at=int(lease.expires_at), owner=lease.owner),
    )


def event(record: EventRecord) -> MachineEvent:
    detail = record.detail or Detail()
    return MachineEvent(
        id=record.id,
        type=record.type,
        status=record.status,
        source=record.source,
        timestamp=int(record.at * 1000),
        request=_request(detail) if detail.exit else None,
        resumed=detail.resumed,
        error=detail.error,
        version=detail.version,
    )


def _request(detail: Detail) -> EventRequest:
    return EventRequest(exit_event=_exit_event(detail), restart_count=detail.restart_count)


def _exit_event(detail: Detail) -> ExitEvent:
    exit = detail.exit
    assert exit is not None
    return ExitEvent(
        exit_code=exit.exit_code,
        guest_exit_code=0 if exit.signal else exit.exit_code,
        guest_signal=exit.signal or -1,
        oom_killed=exit.oom_killed,
        requested_stop=detail.requested_stop,
        restarting=detail.restarting,
        signal=exit.signal or -1,
        exited_at=instant(exit.exited_at),
        reason=exit.reason,
        fault=exit.fault,
    )


def check(result: CheckResult) -> CheckStatus:
    return CheckStatus(name=result.name, status=result.status, output=result.output, updated_at=instant(result.at))


def lease(record: MachineRecord, held: Lease) -> LeaseAnswer:
    return lease_answer(
        LeaseData(
            nonce=held.nonce,
            expires_at=int(held.expires_at),
            owner=held.owner,
            description=held.description,
            version=record.version,
        )
    )


def version(record: VersionRecord) -> MachineVersion:
    return MachineVersion(version=record.version, user_config=with_guest(record.config))

"""Answers about the addresses of apps."""

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.ip_assignment import (
    ASSIGN_IP,
    LIST_IPS,
    RELEASE_IP,
    AssignIpRequest,
    IpAssignment,
    IpAssignments,
    IpNetwork,
    IpParams,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.permission import Action, Attempt
from hawker.record.app import IpRecord
from hawker.store.contract import Store
from hawker.worker.apps import AppTable
from hawker.worker.ip_assignments import IpAllocator, IpRequest


class IpHandlers:
    def __init__(self, store: Store, apps: AppTable, ips: IpAllocator) -> None:
        self._store = store
        self._apps = apps
        self._ips = ips

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_IPS, self.list)
        handlers.on(ASSIGN_IP, self.assign)
        handlers.on(RELEASE_IP, self.release)

    async def list(self, call: Call[AppParams, NoQuery, None]) -> IpAssignments:
        app = self._apps.get(self._store, call.params.app_name)
        return IpAssignments(ips=tuple(map(_view, self._ips.list(app.name))))

    async def assign(self, call: Call[AppParams, NoQuery, AssignIpRequest]) -> IpAssignment:
        """An address in a network of another org needs a right there."""
        body, app = call.body, self._apps.get(self._store, call.params.app_name)
        if body.org_slug not in (None, "", app.org):
            call.grant.check(Attempt(Action.WRITE, org=body.org_slug))
        wish = IpRequest(
            type=body.type or "",
            region=body.region or "",
            service_name=body.service_name or "",
            network=body.network or "",
            org=body.org_slug or "",
        )
        return _view(await self._ips.allocate(app.name, wish))

    async def release(self, call: Call[IpParams, NoQuery, None]) -> None:
        await self._ips.release(call.params.app_name, call.params.ip)


def _view(record: IpRecord) -> IpAssignment:
    return IpAssignment(
        id=record.id,
        ip=record.ip,
        type=record.type,
        region=record.region,
        service_name=record.service_name,
        shared=record.shared,
        created_at=instant(record.created_at),
        network=IpNetwork(name=record.network, org_slug=record.org) if record.network else None,
    )

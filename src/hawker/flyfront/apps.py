"""An app, its organization and what hangs on them, as GraphQL asks: each field is an attribute, or a call made when it
is asked for."""

from typing import Any

import anyio

from hawker.api.contract.app import LIST_IPS, App, AppParams, IpAssignment
from hawker.api.contract.image import RESOLVE_IMAGE, ResolveImageRequest
from hawker.api.contract.machine import LIST_MACHINES, ListMachinesQuery, Machine
from hawker.api.contract.node import region_of
from hawker.api.contract.release import Release
from hawker.api.contract.secret import LIST_SECRETS
from hawker.app import DEFAULT_NETWORK
from hawker.config import Service
from hawker.errors import NotServed
from hawker.flyfront import shapes
from hawker.flyfront.asking import Asking

_HANDLERS = {"http": "HTTP", "tls": "TLS", "proxy_proto": "PROXY_PROTO", "pg_tls": "PG_TLS", "edge_http": "EDGE_HTTP"}


class OrganizationNode:
    """An organization is a name that apps carry: it has no members and no bills of its own."""

    def __init__(self, asking: Asking, slug: str) -> None:
        told = shapes.organization(slug)
        self._asking = asking
        self.id, self.slug, self.rawSlug, self.name = slug, slug, slug, slug
        self.internalNumericId = told.internal_numeric_id
        self.type = "PERSONAL" if told.personal else "SHARED"
        self.paidPlan, self.billable, self.billingStatus = told.paid_plan, told.billable, told.billing_status
        self.provisionsBetaExtensions, self.addOnSsoLink = told.provisions_beta_extensions, None
        self.viewerRole, self.remoteBuilderImage, self.remoteBuilderApp = "admin", "", None
        self.members: dict[str, Any] = {"edges": []}
        self.limitedAccessTokens = self.wireGuardPeers = self.loggedCertificates = shapes.nodes()

    def addOns(self, info: object, type: str | None = None) -> dict[str, Any]:  # the schema's name
        return shapes.nodes()

    def wireGuardPeer(self, info: object, name: str) -> None:
        raise no_peers()


class AppNode:
    """What costs a call is a method. Lists that several fields stand on are asked for once: calls are counted."""

    def __init__(self, asking: Asking, app: App) -> None:
        self._asking = asking
        self._once = anyio.Lock()
        self._listed: tuple[Machine, ...] | None = None
        self._assigned: tuple[IpAssignment, ...] | None = None
        self._params = AppParams(app_name=app.name)
        self.id, self.name, self.status = app.name, app.name, app.status
        self.internalNumericId = app.internal_numeric_id
        self.hostname = f"{app.name}.{shapes.DOMAIN}"
        self.appUrl, self.cnameTarget = None, None
        self.deployed = app.machine_count > 0
        self.network = "" if app.network == DEFAULT_NETWORK else app.network
        self.platformVersion = "machines"
        self.role = {"__typename": "EmptyAppRole", "name": "none"}
        self.organization = OrganizationNode(asking, app.organization.slug)
        self.egressIpAddresses = self.hostIssues = self.limitedAccessTokens = shapes.nodes()

    def allocations(self, info: object, showCompleted: bool | None = None) -> list[Any]:
        return []

    async def version(self, info: object) -> int:
        newest = await self._asking.releases(self.name, 1)
        return newest[0].version if newest else 0

    async def config(self, info: object) -> dict[str, Any]:
        current = await self._asking.current_release(self.name)
        return {"definition": (current and current.definition) or {}}

    async def services(self, info: object) -> list[dict[str, Any]]:
        """Those of the machine that changed last: machines of one app are alike but for their process groups."""
        there = [machine for machine in await self._machines() if machine.config is not None]
        newest = max(there, key=lambda machine: machine.updated_at, default=None)
        config = None if newest is None else newest.config
        return [_service(each) for each in (config.services if config else None) or ()]

    async def secrets(self, info: object) -> list[dict[str, Any]]:
        answer = await self._asking.call(LIST_SECRETS, params=self._params)
        return [{"name": each.name, "digest": each.digest, "createdAt": each.created_at} for each in answer.secrets]

    async def sharedIpAddress(self, info: object) -> str | None:
        return next((each.ip for each in await self._ips() if each.type == "shared_v4"), None)

    async def ipAddresses(self, info: object) -> dict[str, Any]:
        return shapes.nodes([self.ip(each) for each in await self._ips() if each.type != "shared_v4"])

    async def machines(self, info: object) -> dict[str, Any]:
        return shapes.nodes([MachineNode(self, machine) for machine in await self._machines()])

    async def regions(self, info: object) -> list[dict[str, Any]]:
        codes = sorted({machine.region for machine in await self._machines()})
        return [shapes.graph_region(region_of(code)) for code in codes]

    async def image(self, info: object, ref: str) -> dict[str, Any]:
        """Asks the registry: the digest is the one that a machine would be pinned to."""
        found = await self._asking.call(RESOLVE_IMAGE, params=self._params, body=ResolveImageRequest(reference=ref))
        return {
            "id": found.digest,
            "digest": found.digest,
            "ref": found.reference,
            "compressedSizeFull": found.size_bytes,
            "manifest": {},
        }

    async def imageDetails(self, info: object) -> dict[str, Any] | None:
        """Of a machine whose host answers: of others the image's name is not known."""
        found = next((machine for machine in await self._machines() if machine.host_status == "ok"), None)
        return None if found is None else shapes.graph_image(found.image_ref)

    async def currentRelease(self, info: object) -> dict[str, Any] | None:
        return _shown(await self._asking.current_release(self.name))

    async def currentReleaseUnprocessed(self, info: object) -> dict[str, Any] | None:
        return _shown(await self._asking.current_release(self.name))

    async def releasesUnprocessed(self, info: object, first: int | None = None) -> dict[str, Any]:
        found = await self._asking.releases(self.name, min(max(first or 25, 1), 100))
        return shapes.nodes([shapes.graph_release(each) for each in found])

    def ip(self, told: IpAssignment) -> dict[str, Any]:
        network = told.network
        return {
            "id": told.id,
            "address": told.ip,
            "type": told.type,
            "region": told.region,
            "createdAt": told.created_at,
            "network": network
            and {"name": network.name, "organization": OrganizationNode(self._asking, network.org_slug)},
            "serviceName": told.service_name or None,
        }

    async def _machines(self) -> tuple[Machine, ...]:
        async with self._once:
            if self._listed is None:
                answer = await self._asking.call(LIST_MACHINES, params=self._params, query=ListMachinesQuery())
                self._listed = answer.items
                self._asking.cost.spend(len(self._listed))
        return self._listed

    async def _ips(self) -> tuple[IpAssignment, ...]:
        async with self._once:
            if self._assigned is None:
                self._assigned = (await self._asking.call(LIST_IPS, params=self._params)).ips
        return self._assigned


class MachineNode:
    def __init__(self, app: AppNode, machine: Machine) -> None:
        self.id, self.name, self.state, self.region = machine.id, machine.name, machine.state.value, machine.region
        self.config = machine.config
        self.createdAt = machine.created_at
        self.app = app
        self.host = {"id": machine.region}
        self.ips = shapes.nodes([{"family": "v6", "kind": "privatenet", "ip": machine.private_ip, "maskSize": 112}])
        self.egressIpAddresses = shapes.nodes()


def no_peers() -> NotServed:
    """Peers answer at once, because clients wait for them before they go another way."""
    instead = "`hawker machine exec`, `hawker proxy` or `hawker machine restart`"
    return NotServed(f"WireGuard peers are not served by this node yet: use {instead}")


def _shown(release: Release | None) -> dict[str, Any] | None:
    return None if release is None else shapes.graph_release(release)


def _service(service: Service) -> dict[str, Any]:
    ports = [
        {"port": each.port, "handlers": [_HANDLERS[name] for name in each.handlers or () if name in _HANDLERS]}
        for each in service.ports or ()
    ]
    return {
        "description": "",
        "protocol": (service.protocol or "tcp").upper(),
        "internalPort": service.internal_port or 0,
        "ports": ports,
    }

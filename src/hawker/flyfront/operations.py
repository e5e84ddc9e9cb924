"""The roots of GraphQL: one query or mutation is one method here, made of calls of the route table."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hawker.api.contract.app import (
    ASSIGN_IP,
    CREATE_APP,
    DELETE_APP,
    LIST_IPS,
    RELEASE_IP,
    AppParams,
    AssignIpRequest,
    CreateAppRequest,
    IpParams,
)
from hawker.api.contract.flyctl import GRAPHQL, GraphqlRequest
from hawker.api.contract.machine import GET_MACHINE, MachineParams
from hawker.api.contract.node import LIST_REGIONS, region_of
from hawker.api.contract.org import OrgParams
from hawker.api.contract.run import MACHINE_HISTORY, HistoryParams
from hawker.api.contract.secret import LIST_SECRETS, UPDATE_SECRETS, UpdateSecretsRequest
from hawker.api.contract.token import CREATE_DEPLOY_TOKEN, CURRENT_TOKENS, DeployTokenRequest
from hawker.api.contract.volume import LIST_ORG_VOLUMES, LIST_SNAPSHOTS, OrgVolumesQuery, VolumeParams
from hawker.api.grant import ROOT
from hawker.api.handlers import answers
from hawker.api.on_behalf import OnBehalf
from hawker.api.route import Call, NoParams, NoQuery
from hawker.deferred import deferred
from hawker.errors import NotFound, NotServed, Unprocessable
from hawker.fair.table import GRAPHQL_OPERATIONS
from hawker.fair.threads import whose
from hawker.fair.turns import Turns
from hawker.flyfront import shapes
from hawker.flyfront.apps import AppNode, MachineNode, OrganizationNode, no_peers
from hawker.flyfront.asking import Asking

if TYPE_CHECKING:
    from hawker.flyfront import graphql
else:
    graphql = deferred("hawker.flyfront.graphql")

_PAGES = 20


class GraphqlHandlers:
    """`unknown` hears the kind of each name that the schema lacks."""

    def __init__(self, behalf: OnBehalf, unknown: Callable[[str], None]) -> None:
        self._behalf = behalf
        self._unknown = unknown
        self._turns = Turns(GRAPHQL_OPERATIONS)

    @answers(GRAPHQL)
    async def graphql(self, call: Call[NoParams, NoQuery, GraphqlRequest]) -> dict[str, Any]:
        asking = Asking(self._behalf, call)
        async with self._turns.hold(whose()):
            return await graphql.answer(call.body, Root(asking), asking.cost, self._unknown)


class QueryRoot:
    """A query is a method of its name in the schema; `info` is the engine's, and not looked at."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def viewer(self, info: object) -> dict[str, Any]:
        token = (await self._asking.call(CURRENT_TOKENS)).tokens[0]
        return shapes.principal(token.user, narrowed=token.token_id != ROOT)

    async def organization(self, info: object, slug: str | None = None) -> OrganizationNode:
        return await self._organization(slug or "")

    async def organizations(self, info: object, admin: bool | None = None) -> dict[str, Any]:
        slugs = await self._asking.organizations()
        return shapes.nodes([OrganizationNode(self._asking, slug) for slug in slugs])

    async def app(self, info: object, name: str | None = None) -> AppNode:
        return await self._app(name or "")

    async def apps(
        self,
        info: object,
        organizationId: str | None = None,  # the schema's names
        role: str | None = None,
        type: str | None = None,
        first: int | None = None,
        after: str | None = None,
    ) -> dict[str, Any]:
        """By name, from the one after `after` on. No app has a role."""
        found: list[AppNode] = []
        if not role:
            async for app in self._asking.apps(organizationId or None):
                if app.name > (after or ""):
                    found.append(AppNode(self._asking, app))
        most = min(max(first or 200, 1), 1000)
        shown = sorted(found, key=lambda app: app.name)[:most]
        more = len(found) > most
        return {**shapes.nodes(shown), "pageInfo": {"hasNextPage": more, "endCursor": shown[-1].name if more else None}}

    async def appNameAvailable(self, info: object, name: str) -> bool:
        try:
            await self._app(name)
        except NotFound:
            return True
        return False

    def canPerformBluegreenDeployment(self, info: object, name: str) -> bool:
        return True

    def latestImageDetails(self, info: object, image: str, flyVersion: str | None = None) -> None:
        raise NotFound("Unknown repository")

    def latestImageTag(self, info: object, repository: str, snapshotId: str | None = None) -> None:
        raise NotServed("images of Fly's own are not known here: give --image")

    async def machine(self, info: object, machineId: str) -> MachineNode:
        told = await self._asking.call(MACHINE_HISTORY, params=HistoryParams(machine_id=machineId))
        app = await self._app(told.app)
        params = MachineParams(app_name=app.name, machine_id=machineId)
        return MachineNode(app, await self._asking.call(GET_MACHINE, params=params))

    async def nearestRegion(self, info: object, wireguardGateway: bool | None = None) -> dict[str, Any]:
        return shapes.graph_region(region_of((await self._asking.call(LIST_REGIONS)).nearest))

    async def platform(self, info: object) -> dict[str, Any]:
        told = await self._asking.call(LIST_REGIONS)
        return {"requestRegion": told.nearest, "regions": [shapes.graph_region(each) for each in told.regions]}

    async def volume(self, info: object, id: str) -> dict[str, Any]:
        """Looked for in each organization: the id does not say whose it is."""
        for slug in await self._asking.organizations():
            cursor = ""
            for _ in range(_PAGES):
                page = await self._asking.call(
                    LIST_ORG_VOLUMES, params=OrgParams(org_slug=slug), query=OrgVolumesQuery(cursor=cursor or None)
                )
                for each in page.volumes:
                    if each.id == id:
                        return await self._volume(each.app_name, each.id, each.state)
                cursor = page.next_cursor
                if not cursor:
                    break
        raise NotFound(f"volume {id!r:.80} not found")

    def addOns(self, info: object, type: str | None = None) -> dict[str, Any]:
        return shapes.nodes()

    async def _app(self, name: str) -> AppNode:
        return AppNode(self._asking, await self._asking.app(name))

    async def _organization(self, slug: str) -> OrganizationNode:
        await self._asking.check_organization(slug)
        return OrganizationNode(self._asking, slug)

    async def _volume(self, app: str, volume: str, state: str) -> dict[str, Any]:
        params = VolumeParams(app_name=app, volume_id=volume)
        snapshots = [
            {
                "id": each.id,
                "size": each.size,
                "digest": each.digest,
                "createdAt": each.created_at,
                "retentionDays": each.retention_days,
            }
            for each in await self._asking.call(LIST_SNAPSHOTS, params=params)
        ]
        return {"state": state, "app": await self._app(app), "snapshots": shapes.nodes(snapshots)}


class Root(QueryRoot):
    """Queries, and mutations: `input` is as the schema has it."""

    async def createApp(self, info: object, input: dict[str, Any]) -> dict[str, Any]:
        name = input.get("name")
        if not name:
            raise Unprocessable("name is required: this node makes no names up")
        body = CreateAppRequest(name=name, org_slug=input["organizationId"], network=input.get("network"))
        return {"app": AppNode(self._asking, await self._asking.call(CREATE_APP, body=body))}

    async def deleteApp(self, info: object, appId: str) -> dict[str, Any]:
        app = await self._app(appId)
        await self._asking.call(DELETE_APP, params=AppParams(app_name=app.name))
        return {"organization": app.organization}

    def createOrganization(self, info: object, input: dict[str, Any]) -> None:
        raise NotServed("an organization begins with its first app: `hawker apps create NAME --org ORG`")

    async def setSecrets(self, info: object, input: dict[str, Any]) -> dict[str, Any]:
        params = AppParams(app_name=input["appId"])
        values: dict[str, str | None] = {each["key"]: each["value"] for each in input["secrets"]}
        if input.get("replaceAll"):
            there = (await self._asking.call(LIST_SECRETS, params=params)).secrets
            values = {**{each.name: None for each in there}, **values}
        await self._asking.call(UPDATE_SECRETS, params=params, body=UpdateSecretsRequest(values=values))
        return {"release": None}

    async def unsetSecrets(self, info: object, input: dict[str, Any]) -> dict[str, Any]:
        body = UpdateSecretsRequest(values=dict.fromkeys(input["keys"]))
        await self._asking.call(UPDATE_SECRETS, params=AppParams(app_name=input["appId"]), body=body)
        return {"release": None}

    async def allocateIpAddress(self, info: object, input: dict[str, Any]) -> dict[str, Any]:
        app = await self._app(input["appId"])
        body = AssignIpRequest(
            type=input["type"],
            region=input.get("region") or None,
            org_slug=input.get("organizationId") or None,
            network=input.get("network") or None,
            service_name=input.get("serviceName") or None,
        )
        made = await self._asking.call(ASSIGN_IP, params=AppParams(app_name=app.name), body=body)
        return {"app": app, "ipAddress": None if made.type == "shared_v4" else app.ip(made)}

    async def releaseIpAddress(self, info: object, input: dict[str, Any]) -> dict[str, Any]:
        """By the address, or by its id."""
        app, ip = await self._app(input.get("appId") or ""), input.get("ip")
        params = AppParams(app_name=app.name)
        if not ip:
            ips = (await self._asking.call(LIST_IPS, params=params)).ips
            ip = next((each.ip for each in ips if each.id == input.get("ipAddressId")), None)
        if not ip:
            raise NotFound(f"name the address: app '{app.name}' has none with this id")
        await self._asking.call(RELEASE_IP, params=IpParams(app_name=app.name, ip=ip))
        return {"app": app, "clientMutationId": None}

    async def createLimitedAccessToken(self, info: object, input: dict[str, Any]) -> dict[str, Any]:
        """A token for one app. Others are made at the command line, where they are narrowed offline."""
        app = (input.get("profileParams") or {}).get("app_id")
        if input["profile"] != "deploy" or not isinstance(app, str):
            raise NotServed("only tokens to deploy one app are made here: see `hawker tokens create` for others")
        body = DeployTokenRequest(expiry=input.get("expiry") or None)
        made = await self._asking.call(CREATE_DEPLOY_TOKEN, params=AppParams(app_name=app), body=body)
        user = shapes.principal(f"deploy-{app}", narrowed=False)
        shown = {"id": input["name"], "name": input["name"], "token": made.token, "tokenHeader": made.token}
        return {"limitedAccessToken": {**shown, "expiresAt": None, "revokedAt": None, "user": user}}

    def deleteLimitedAccessToken(self, info: object, input: dict[str, Any]) -> None:
        raise NotServed("a token is ended by its text or id: `hawker tokens revoke`")

    def logOut(self, info: object, input: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True}

    def addWireGuardPeer(self, info: object, input: dict[str, Any]) -> None:
        raise no_peers()

    def removeWireGuardPeer(self, info: object, input: dict[str, Any]) -> None:
        raise no_peers()

    def validateWireGuardPeers(self, info: object, input: dict[str, Any]) -> None:
        raise no_peers()

    def issueCertificate(self, info: object, input: dict[str, Any]) -> None:
        raise no_peers()

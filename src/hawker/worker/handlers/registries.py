"""Answers about organizations' logins at registries."""

from hawker.api.contract.body import instant
from hawker.api.contract.org import OrgParams
from hawker.api.contract.registry import (
    DELETE_LOGIN,
    LIST_LOGINS,
    PUT_LOGIN,
    LoginRequest,
    RegistryLogin,
    RegistryLoginList,
    RegistryParams,
)
from hawker.api.handlers import answers
from hawker.api.route import Call, NoQuery
from hawker.ids import NodeId
from hawker.image.cache import ImageCache
from hawker.image.registry import Credentials
from hawker.log import Secret
from hawker.permission import Action, Attempt
from hawker.record.org import LoginRecord
from hawker.secret.registry_logins import RegistryLogins, registry_name


class RegistryHandlers:
    def __init__(self, node: NodeId, logins: RegistryLogins, images: ImageCache) -> None:
        self._node = node
        self._logins = logins
        self._images = images

    @answers(LIST_LOGINS)
    async def list_(self, call: Call[OrgParams, NoQuery, None]) -> RegistryLoginList:
        call.grant.check(Attempt(Action.READ, org=call.params.org_slug))
        found = await self._logins.all(call.params.org_slug)
        return RegistryLoginList(logins=tuple(self._shown(record, nodes) for record, nodes in found))

    @answers(PUT_LOGIN)
    async def put(self, call: Call[RegistryParams, NoQuery, LoginRequest]) -> RegistryLogin:
        org, body = call.params.org_slug, call.body
        call.grant.check(Attempt(Action.WRITE, org=org))
        registry = registry_name(call.params.registry)
        credentials = Credentials(body.username, Secret(body.password), body.realm or "")
        self._logins.check(credentials)
        if not body.unchecked:
            await self._images.check_login(registry, credentials)
        return self._shown(await self._logins.put(org, registry, credentials, call.caller), ())

    @answers(DELETE_LOGIN)
    async def delete(self, call: Call[RegistryParams, NoQuery, None]) -> None:
        call.grant.check(Attempt(Action.WRITE, org=call.params.org_slug))
        await self._logins.give_up(call.params.org_slug, registry_name(call.params.registry), call.caller)

    def _shown(self, record: LoginRecord, nodes: tuple[NodeId, ...]) -> RegistryLogin:
        return RegistryLogin(
            registry=record.registry,
            username=record.username,
            at=instant(record.at),
            by=record.by,
            nodes=nodes or (self._node,),
        )

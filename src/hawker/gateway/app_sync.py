"""Bringing an app to the nodes that need it: its record, secrets and policies, as they are at its home now. The broker
carries what it cannot read.
"""

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.market import EXPORT_APP, OrderedApp
from hawker.api.contract.owner import CARRY_APP
from hawker.errors import NotFound, Unavailable
from hawker.gateway.fan_out import Asked, FanOut
from hawker.gateway.owners import Owners
from hawker.ids import AppName, NodeId


class AppSync:
    def __init__(self, owners: Owners, asking: FanOut) -> None:
        self._owners = owners
        self._fan_out = asking

    async def to(self, app: AppName, node: NodeId, behalf: str) -> None:
        """Where its home cannot be asked, a node that knows the app goes on with what it has. Raises `NotFound`, and
        `Unavailable` when the node cannot be told, or does not know the app and nobody who does can be asked."""
        if self._owners.home_of_app(app) == node:
            return
        knows = node in self._owners.nodes_of_app(app)
        packed = await self._packed(app, behalf, only_home=knows)
        if packed is None:
            return
        params = AppParams(app_name=app)
        reach = self._fan_out.reach
        with reach.errors(node, harmless=True):
            await reach.caller(node, behalf).call(CARRY_APP, params=params, body=packed)
        self._owners.remember("app", app, node)

    async def everywhere(self, app: AppName, behalf: str) -> Asked[object]:
        """To all nodes that know it beside its home."""
        home = self._owners.home_of_app(app)
        nodes = [node for node in self._owners.nodes_of_app(app) if node != home]
        packed = await self._packed(app, behalf, only_home=False) if nodes else None

        async def one(caller: Caller) -> object:
            assert packed is not None
            return await caller.call(CARRY_APP, params=AppParams(app_name=app), body=packed)

        return await self._fan_out.every(nodes if packed else (), behalf, one)

    async def _packed(self, app: AppName, behalf: str, *, only_home: bool) -> OrderedApp | None:
        """As its home has it, else as anybody has it who knows it."""
        home = self._owners.home_of_app(app)
        nodes = self._owners.nodes_of_app(app)

        async def one(caller: Caller) -> OrderedApp:
            return await caller.call(EXPORT_APP, params=AppParams(app_name=app))

        asked = await self._fan_out.first((home,) if home is not None else (), behalf, one)
        if not asked.answers and home is not None and not asked.silent:
            raise NotFound("app not found")
        if not asked.answers and only_home:
            return None
        for _, packed in asked.answers:
            return packed
        others = await self._fan_out.first([node for node in nodes if node != home], behalf, one)
        for _, packed in others.answers:
            return packed
        for _, why in (*asked.silent, *others.silent):
            raise Unavailable(f"nobody who knows app '{app}' can be asked: {why}")
        raise NotFound("app not found")

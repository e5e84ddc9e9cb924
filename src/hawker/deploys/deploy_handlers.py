"""Answers about deploys, at the app's home."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    CREATE_DEPLOY,
    GET_DEPLOY,
    LIST_DEPLOYS,
    PAUSE_DEPLOY,
    RESUME_DEPLOY,
    AbortDeployRequest,
    CreateDeployRequest,
    DeployInfo,
    DeployList,
    DeployParams,
    DeploySlot,
    GetDeployQuery,
)
from hawker.api.handlers import answers
from hawker.api.route import B, Call, NoQuery, Unary
from hawker.deferred import deferred
from hawker.deploys.deploy_table import DeployTable, is_last
from hawker.errors import NotFound, WrongState
from hawker.record.app import APPS, RELEASES, ReleaseRecord
from hawker.record.deploy import DeployRecord, DeployWish, SlotRecord, deploy_key

if TYPE_CHECKING:
    from hawker.deploys import accept, coordinator, flows
else:
    accept = deferred("hawker.deploys.accept")
    coordinator = deferred("hawker.deploys.coordinator")

PLANNED = "planned"
_LATEST = "latest"


class DeployHandlers:
    """`intake` begins deploys; it is asked for when one comes. `others` are the nodes that may coordinate them."""

    def __init__(
        self, table: DeployTable, intake: "Callable[[], accept.Intake]", others: "flows.LateCoordinating"
    ) -> None:
        self._table = table
        self._intake = intake
        self._others = others

    @answers(CREATE_DEPLOY)
    async def create(self, call: Call[AppParams, NoQuery, CreateDeployRequest]) -> DeployInfo:
        app = self._app(call.params.app_name)
        made = await self._intake().accept(app, call.body, call.grant)
        shown = view(app, made.release, made.deploy, made.plan.slots, warnings=made.warnings)
        return replace(shown, status=PLANNED) if call.body.dry_run else shown

    @answers(LIST_DEPLOYS)
    async def list_(self, call: Call[AppParams, NoQuery, None]) -> DeployList:
        app = self._app(call.params.app_name)
        found = self._table.list(self._table.store, app)
        return DeployList(deploys=tuple(view(app, release, deploy) for deploy, release in found))

    @answers(GET_DEPLOY)
    async def get(self, call: Call[DeployParams, GetDeployQuery, None]) -> DeployInfo:
        app, version = self._named(call.params)
        if call.query.after is not None:
            await self._table.until(app, version, call.query.after, call.query.wait)
        return self._shown(app, version)

    @answers(PAUSE_DEPLOY)
    async def pause(self, call: Call[DeployParams, NoQuery, None]) -> DeployInfo:
        return await self._ask(call, PAUSE_DEPLOY, DeployWish.PAUSE)

    @answers(RESUME_DEPLOY)
    async def resume(self, call: Call[DeployParams, NoQuery, None]) -> DeployInfo:
        return await self._ask(call, RESUME_DEPLOY, DeployWish.NOTHING)

    @answers(ABORT_DEPLOY)
    async def abort(self, call: Call[DeployParams, NoQuery, AbortDeployRequest]) -> DeployInfo:
        return await self._ask(call, ABORT_DEPLOY, DeployWish.STOP if call.body.keep else DeployWish.ABORT)

    async def _ask(
        self,
        call: Call[DeployParams, NoQuery, B],
        route: Unary[DeployParams, NoQuery, B, DeployInfo],
        asked: DeployWish,
    ) -> DeployInfo:
        """At who coordinates the deploy. What was asked is at a majority of its voters once it is answered."""
        app, version = self._named(call.params)
        elsewhere = self._coordinator(app, version)
        if elsewhere is not None:
            return await elsewhere.call(route, params=call.params, body=call.body)

        def allowed(record: DeployRecord) -> None:
            release = self._release(app, version)
            if record.ended_at is not None:
                raise WrongState(f"deploy {version} of app '{app}' has ended: {release.status}")
            if release.status == "rolling_back":
                raise WrongState(f"deploy {version} of app '{app}' is going back already")
            if is_last(record):
                raise WrongState(f"deploy {version} of app '{app}' is complete but for old machines, which go now")
            if asked is DeployWish.NOTHING and record.asked is not DeployWish.PAUSE:
                raise WrongState(f"deploy {version} of app '{app}' is not paused")
            if record.asked in (DeployWish.ABORT, DeployWish.STOP):
                raise WrongState(f"deploy {version} of app '{app}' is being aborted")

        made = await self._table.ask(app, version, asked, allowed)
        if made.is_replicated:
            nodes = self._others.there
            await coordinator.Coordinator(app, version, self._table, lambda: nodes, self._table.clock).keep_now()
        return self._shown(app, version)

    def _coordinator(self, app: str, version: int) -> Caller | None:
        """The way to it, where it is another node. Raises `NotFound`, `Unavailable`."""
        record = self._table.find(self._table.store, app, version)
        if not record.is_replicated or record.ended_at is not None:
            return None
        nodes = self._others.there
        return None if record.coordinator in ("", nodes.me) else nodes.caller(record.coordinator)

    def _app(self, name: str) -> str:
        record = self._table.store.get(APPS, name)
        if record is None:
            raise NotFound("app not found")
        return record.name

    def _named(self, params: DeployParams) -> tuple[str, int]:
        app, text = self._app(params.app_name), params.version
        if text == _LATEST:
            found = self._table.list(self._table.store, app)
            if not found:
                raise NotFound(f"app '{app}' was never deployed here")
            return app, found[0][0].version
        if not text.isdecimal() or len(text) > 9:
            raise NotFound(f"app '{app}' has no deploy {text:.80}")
        return app, int(text)

    def _release(self, app: str, version: int) -> ReleaseRecord:
        record = self._table.store.get(RELEASES, deploy_key(app, version))
        if record is None:
            raise NotFound(f"app '{app}' has no deploy {version}")
        return record

    def _shown(self, app: str, version: int) -> DeployInfo:
        with self._table.store.snapshot() as reader:
            deploy, slots = self._table.find(reader, app, version), self._table.slots(reader, app, version)
        return view(app, self._release(app, version), deploy, slots)


def view(
    app: str,
    release: ReleaseRecord,
    deploy: DeployRecord,
    slots: Sequence[SlotRecord] = (),
    warnings: tuple[str, ...] = (),
) -> DeployInfo:
    paused = deploy.asked is DeployWish.PAUSE and deploy.ended_at is None
    return DeployInfo(
        app_name=app,
        version=deploy.version,
        status="paused" if paused else release.status,
        strategy=deploy.strategy,
        image=release.image,
        user=release.user,
        label=release.description,
        stage=deploy.stage,
        error=deploy.error,
        serial=deploy.serial,
        alone=deploy.alone,
        coordinator=deploy.coordinator,
        voters=deploy.voters,
        began_at=instant(deploy.began_at),
        ended_at=None if deploy.ended_at is None else instant(deploy.ended_at),
        slots=tuple(map(_slot, slots)),
        warnings=warnings,
    )


def _slot(slot: SlotRecord) -> DeploySlot:
    return DeploySlot(
        number=slot.number,
        kind=slot.kind.value,
        group=slot.group,
        region=slot.region,
        machine_id=slot.machine,
        state=slot.state.value,
        text=slot.text,
        at=instant(slot.at),
    )

"""Accepting a deploy: everything that can be refused is refused here. Then one transaction writes the release, the plan
and the run; until that nothing is touched, and no number is used up.
"""

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from hawker.api.caller import Caller, LateCaller
from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    MOST_STATE_BYTES,
    AbortDeployRequest,
    CreateDeployRequest,
    DeployParams,
)
from hawker.api.contract.image import RESOLVE_IMAGE, ResolveImageRequest
from hawker.api.contract.machine import LIST_MACHINES, Machine
from hawker.api.contract.market import LIST_PLACEMENTS, PlacementsRequest
from hawker.api.contract.volume import LIST_VOLUMES
from hawker.api.grant import Grant
from hawker.auth.image_names import check_image_names
from hawker.clock import Clock
from hawker.config import Guest, MachineConfig
from hawker.config.effective import guest
from hawker.deploys.coordinator import size_of
from hawker.deploys.deploy_table import DeployTable
from hawker.deploys.flows import DEPLOY, DeployInput
from hawker.deploys.plan import (
    MOST_SLOTS,
    MOST_TEXT,
    RELEASE,
    DeployPlan,
    DeployScope,
    WantedRelease,
    limits_of,
    needs_certificate,
    planned,
    warnings_of,
    waves_of,
)
from hawker.deploys.releases import ReleaseStatus, added, check_free, check_size, has_complete, next_version, unfinished
from hawker.deploys.tasks import command_of, machine_checks_of, seed_of
from hawker.deploys.voters import CoordinatingNodes, capable_voters
from hawker.errors import BadRequest, Conflict, Fault, NoRoom, NotFound, Unavailable, Unprocessable, WrongState
from hawker.fair.threads import Pool, in_thread
from hawker.flytoml.app_config import AppConfig, MountSection
from hawker.flytoml.machines import machine_configs
from hawker.flytoml.reader import OF_HOSTS, read_app_config
from hawker.flytoml.shape import UNKNOWN_KEY
from hawker.fsm.contract import WhenBusy
from hawker.fsm.runner import Runner
from hawker.image.reference import RegistryReference, parse
from hawker.permission import DEPLOYING, Attempt
from hawker.record.app import APPS, CERTIFICATE_ORDERS, CERTIFICATES, ReleaseRecord
from hawker.record.deploy import DeployRecord, SlotKind, SlotRecord, deploy_resource
from hawker.secret.secrets import Secrets
from hawker.store.contract import Tx
from hawker.value_object import ValueObject

_MADE = frozenset({SlotKind.CREATE, SlotKind.CANARY})
_KEPT_S, _LOOK_S = 10.0, 0.005
_ENDS_S, _ENDS_LOOK_S = 60.0, 0.25


class Accepted(ValueObject, frozen=True, kw_only=True):
    """A deploy as it was accepted, or as it would be. `warnings` are what the file asks for and does not get."""

    release: ReleaseRecord
    deploy: DeployRecord
    plan: DeployPlan
    warnings: tuple[str, ...] = ()


class Intake(ValueObject, frozen=True):
    """The place where a node's deploys begin. `nodes` raises `Unavailable` on a node that is alone. `registries`, those
    of the settings, may be anywhere. With a `domain` each app has a name that a certificate of the platform covers."""

    table: DeployTable
    clock: Clock
    fleet: LateCaller
    secrets: Secrets
    runner: Runner[Any]
    nodes: Callable[[], CoordinatingNodes]
    registries: Container[str] = msgspec.field(default=())
    domain: str | None = None

    async def accept(self, app: str, body: CreateDeployRequest, grant: Grant, behind: tuple[str, ...] = ()) -> Accepted:
        """`behind` are machines whose hosts are away, beside those that are seen to be. Raises `Conflict` when another
        deploy of the app is under way, `Unprocessable`, `BadRequest` and `NotFound` saying what has to change."""
        for action in DEPLOYING:
            grant.check(Attempt(action, app=app))
        if not body.supersede or body.dry_run:
            check_free(self.table.store, app, self.clock.now())
        definition = msgspec.json.encode(body.definition or {})
        config, passed_over = await in_thread(Pool.BODIES, partial(_read, lax=bool(body.lax)), definition)
        caller, asked = self.fleet.caller, body.image or (config.build.image if config.build else None)
        if not asked:
            raise Unprocessable("there is no image: give one, or name it in [build] image; nothing is built here")
        strategy = body.strategy or (config.deploy.strategy if config.deploy else None) or "rolling"
        label = body.label or ""
        check_size(asked, strategy, label, definition)
        image = await self._pinned(app, asked, caller, grant)
        configs = await in_thread(Pool.BODIES, machine_configs, config, image)
        for each in configs.values():
            check_image_names(grant, each, self.registries)
            self.secrets.check_names(app, each, skip=False)
        wanted = WantedRelease(
            app=app,
            version=next_version(self.table.store, app),
            config=config,
            configs=configs,
            strategy=strategy,
            ha=body.ha is not False,
            now=self.clock.now(),
            counts=body.counts or {},
            scope=DeployScope(
                only_machines=body.only_machines,
                exclude_machines=body.exclude_machines,
                only_regions=body.only_regions,
                exclude_regions=body.exclude_regions,
                process_groups=body.process_groups,
                update_only=bool(body.update_only),
            ),
        )
        machines = await _machines(app, caller)
        of = {str(each.config.metadata.get(RELEASE)) for each in machines if each.config and each.config.metadata}
        wanted = replace(wanted, unfinished=unfinished(self.table.store, app, of))
        plan = planned(wanted, machines)
        if body.supersede and not body.dry_run and self.runner.active(deploy_resource(app)) is not None:
            await self._supersede(app)
            plan = planned(replace(wanted, now=self.clock.now()), await _machines(app, caller))
        if len(plan.slots) > MOST_SLOTS:
            raise Unprocessable(f"{len(plan.slots)} machines are more than the {MOST_SLOTS} that one deploy moves")
        await self._check_volumes(app, config, plan, caller)
        await self._check_room(app, plan, caller)
        accepted = self._accepted(wanted, plan, asked, image, definition, label, grant.name, behind)
        if plan.slots:
            accepted = replace(accepted, deploy=await self._with_tasks(wanted, accepted.deploy, image, body, grant))
        said = (*passed_over, *warnings_of(config, configs, strategy), *self._uncertified(app, configs), *_away(plan))
        made = replace(accepted, warnings=said)
        if not body.dry_run:
            made = await self._with_voters(app, made)
            await self.table.store.write(lambda tx: self._begin(tx, app, made))
            await self._kept(app, made.deploy)
        return made

    def _uncertified(self, app: str, configs: Mapping[str, MachineConfig]) -> list[str]:
        """The app's home keeps its certificates, and this is it."""
        if self.domain is not None or not any(map(needs_certificate, configs.values())):
            return []
        store = self.table.store
        owners = {each.app for _, each in store.scan(CERTIFICATES)}
        if app in owners or any(each.app == app for _, each in store.scan(CERTIFICATE_ORDERS)):
            return []
        return [
            f"force_https: app '{app}' has no certificate, so HTTP is answered with a redirect to an HTTPS that fails:"
            f" order one with `hawker certs add HOST -a {app}`, import one with `hawker certs import HOST -a {app}`,"
            " or set force_https = false"
        ]

    async def _supersede(self, app: str) -> None:
        """Ends what is under way where it is, whoever coordinates it; one that goes back comes to its end. Raises
        `Conflict` where that takes too long."""
        params, deadline = DeployParams(app_name=app, version="latest"), self.clock.monotonic() + _ENDS_S
        while self.runner.active(deploy_resource(app)) is not None:
            with suppress(WrongState):
                await self.fleet.caller.call(ABORT_DEPLOY, params=params, body=AbortDeployRequest(keep=True))
            if self.clock.monotonic() >= deadline:
                check_free(self.table.store, app, self.clock.now())
            await self.clock.sleep(_ENDS_LOOK_S)

    async def _with_voters(self, app: str, made: Accepted) -> Accepted:
        """Who else keeps the deploy, if anybody can."""
        record = self.table.store.get(APPS, app)
        try:
            nodes = self.nodes()
        except Unavailable:
            return made
        if record is None:
            return made
        voters, old = await capable_voters(record.id, made.release.version, nodes)
        alone = "while its home is away, this deploy stands still"
        if old and not voters:
            said = f"the nodes {', '.join(old)} are of a version that keeps no deploys of others: {alone}"
            return replace(made, warnings=(*made.warnings, said))
        if voters and size_of(made.deploy, made.plan.slots, made.release) > MOST_STATE_BYTES // 2:
            said = f"the plan is too large for other nodes to keep: {alone}"
            return replace(made, warnings=(*made.warnings, said))
        return replace(made, deploy=msgspec.structs.replace(made.deploy, voters=voters))

    async def _kept(self, app: str, deploy: DeployRecord) -> None:
        """Returns once a majority has it. Raises `Fault` where that takes too long: it goes on all the same."""
        if not deploy.is_replicated:
            return
        deadline = self.clock.monotonic() + _KEPT_S
        while not self.table.find(self.table.store, app, deploy.version).kept:
            if self.clock.monotonic() >= deadline:
                raise Fault(
                    f"deploy {deploy.version} of app '{app}' is accepted here and not kept by a majority of the nodes"
                    f" {', '.join(deploy.voters)} yet: it begins when it is"
                )
            await self.clock.sleep(_LOOK_S)

    async def _pinned(self, app: str, image: str, caller: Caller, grant: Grant) -> str:
        """With the digest that the name means now, where the image is a registry's: a tag may move while machines
        change, and before they are taken back."""
        check_image_names(grant, MachineConfig(image=image), self.registries)
        found = await caller.call(
            RESOLVE_IMAGE, params=AppParams(app_name=app), body=ResolveImageRequest(reference=image)
        )
        reference = parse(image)
        if isinstance(reference, RegistryReference) and reference.digest is None and found.registry:
            return f"{reference}@{found.digest}"
        return image

    async def _with_tasks(
        self, wanted: WantedRelease, deploy: DeployRecord, image: str, body: CreateDeployRequest, grant: Grant
    ) -> DeployRecord:
        """Its commands, and the machine checks, each of an image that is there."""
        commands, checks, pinned = not body.skip_release_command, machine_checks_of(wanted, image), {image: image}
        for asked in {each.config.image or image for each in checks} - {image}:
            pinned[asked] = await self._pinned(wanted.app, asked, self.fleet.caller, grant)
        return replace(
            deploy,
            command=command_of(wanted, image) if commands else None,
            seed=seed_of(wanted, image) if commands and not has_complete(self.table.store, wanted.app) else None,
            checks=tuple(
                replace(each, config=replace(each.config, image=pinned[each.config.image or image])) for each in checks
            ),
        )

    async def _check_volumes(self, app: str, config: AppConfig, plan: DeployPlan, caller: Caller) -> None:
        """Each machine that is to be made with a volume has a free one."""
        names = [
            (mount.name, slot.region)
            for slot in plan.slots
            if slot.kind is SlotKind.CREATE and slot.config is not None
            for mount in slot.config.mounts or ()
        ]
        if not names:
            return
        page = await caller.call(LIST_VOLUMES, params=AppParams(app_name=app))
        free = [volume for volume in page.items if volume.attached_machine_id is None]
        for name, region in names:
            found = next((each for each in free if each.name == name and region in (None, each.region)), None)
            if found is None:
                words = (f" -r {region}" if region else "") + _volume_words(config, name)
                raise Unprocessable(
                    f"mounts: app '{app}' has no free volume {name!r}: make one with"
                    f" `hawker volumes create {name} -a {app}{words}`"
                )
            free.remove(found)

    async def _check_room(self, app: str, plan: DeployPlan, caller: Caller) -> None:
        """The machines of a group that are to be made in a region would find room there now, each group by itself.
        Those with volumes go where these are. Raises `NoRoom`."""
        record = self.table.store.get(APPS, app)
        if record is None:
            raise NotFound(f"there is no app '{app}'")
        wanted: dict[tuple[str, str | None], list[SlotRecord]] = {}
        for slot in plan.slots:
            if slot.kind in _MADE and slot.config is not None and not slot.config.mounts:
                wanted.setdefault((slot.group, slot.region), []).append(slot)
        for (group, region), slots in wanted.items():
            assert slots[0].config is not None, "it was looked at above"
            size, needed = guest(slots[0].config), sum(slot.launch for slot in slots) or 1
            compute = slots[0].config.guest or Guest(
                cpu_kind="performance" if size.cpu_kind == "performance" else "shared",
                cpus=size.cpus,
                memory_mb=size.memory_mb,
            )
            body = PlacementsRequest(org_slug=record.org, compute=compute, region=region, count=needed)
            fits = sum(each.count for each in (await caller.call(LIST_PLACEMENTS, body=body)).regions)
            if fits < needed:
                where = f"region '{region}'" if region else "the fleet"
                raise NoRoom(
                    f"group {group!r}: the deploy makes {needed} machines of {size.cpus} cpus and {size.memory_mb} MiB,"
                    f" and {where} has room for {fits}",
                    scope="region",
                    shortfall={"machines": needed - fits},
                )

    def _accepted(
        self,
        wanted: WantedRelease,
        plan: DeployPlan,
        image: str,
        pinned: str,
        definition: bytes,
        label: str,
        user: str,
        behind: tuple[str, ...],
    ) -> Accepted:
        now = wanted.now
        release = ReleaseRecord(
            version=wanted.version,
            status=ReleaseStatus.RUNNING,
            strategy=wanted.strategy,
            image=image,
            description=label,
            definition=definition,
            user=user,
            created_at=now,
            updated_at=now,
            pinned=pinned,
        )
        deploy = DeployRecord(
            version=wanted.version,
            strategy=wanted.strategy,
            limits=limits_of(wanted.config, wanted.strategy),
            stage="begins",
            alone=plan.alone,
            waves=waves_of(wanted, plan.slots),
            blue_untouched=True,
            behind=tuple(dict.fromkeys((*plan.away, *behind))),
            began_at=now,
        )
        return Accepted(release=release, deploy=deploy, plan=plan)

    def _begin(self, tx: Tx, app: str, made: Accepted) -> None:
        check_free(tx, app, self.clock.now())
        self.runner.accept(
            tx,
            DEPLOY,
            deploy_resource(app),
            DeployInput(app=app, version=made.release.version),
            when_busy=WhenBusy.QUEUE,  # behind the run of one that has ended
        )
        if added(tx, app, made.release).version != made.release.version:
            raise Conflict(f"another release of app '{app}' was made at the same moment: try again")
        self.table.insert(tx, app, made.deploy, made.plan.slots)


def _volume_words(config: AppConfig, name: str | None) -> str:
    """The options with which a volume is made as the file wants it."""
    mount = next((each for each in config.mounts or () if each.source == name), MountSection())
    words = f" --size {mount.initial_size}" if mount.initial_size else ""
    words += f" --snapshot-retention {mount.snapshot_retention}" if mount.snapshot_retention else ""
    no = "" if mount.scheduled_snapshots else "no-"
    return words + (f" --{no}scheduled-snapshots" if mount.scheduled_snapshots is not None else "")


def _away(plan: DeployPlan) -> list[str]:
    said = [f"machine {each}: its host is away, so it stays as it is until that is back" for each in plan.away]
    return said + [
        f"group {group!r} gets no new machine: those that it has are on hosts that are away; `hawker node forget` takes"
        " a host that does not come back off the list"
        for group in plan.waiting
    ]


def _read(definition: bytes, *, lax: bool) -> tuple[AppConfig, tuple[str, ...]]:
    """With what is said of the keys that `lax` passes over. Raises `Unprocessable` with every error at once."""
    reading = read_app_config(definition.decode(), ".json", lax=lax)
    texts = [(f"{each.path}: " if each.path else "") + each.text for each in reading.problems if not each.warning]
    if reading.config is None:
        raise Unprocessable("; ".join(texts)[:MOST_TEXT])
    if any(file.local_path for file in reading.config.files or ()):
        raise BadRequest("files: a node has no local_path: send the content as raw_value")
    passed = [each for each in reading.problems if each.text.startswith(UNKNOWN_KEY) or each.text in OF_HOSTS.values()]
    return reading.config, tuple(f"{each.path} is passed over: {each.text}" for each in passed)


async def _machines(app: str, caller: Caller) -> list[Machine]:
    page = await caller.call(LIST_MACHINES, params=AppParams(app_name=app))
    return list(page.items)

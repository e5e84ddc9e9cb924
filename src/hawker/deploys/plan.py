"""What a deploy is going to do: an app's file and its machines become slots. Pure; what cannot be is refused here,
before anything is touched.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import ceil

import msgspec
from msgspec.structs import replace

from hawker.api.contract.machine import Machine
from hawker.config import complaints
from hawker.config.duration import parse_duration
from hawker.config.effective import checks
from hawker.config.machine import MachineConfig
from hawker.config.service_rules import kept_only
from hawker.errors import Unprocessable
from hawker.flytoml.app_config import AppConfig, HawkerDeploy
from hawker.flytoml.machines import GROUP, PLATFORM, overlaid
from hawker.machine import GONE, State
from hawker.record.deploy import DeployLimits, SlotBefore, SlotKind, SlotRecord, SlotState
from hawker.value_object import ValueObject

COMMAND_GROUP = "fly_app_release_command"
RELEASE = "fly_release_version"
RELEASE_ID = "fly_release_id"
_BLUEGREEN = "fly_bluegreen_deployment_tag"
CHECK_GROUP = "fly_app_test_machine_command"
_OF_CLIENTS = {COMMAND_GROUP, CHECK_GROUP, "fly_app_console"}
"""Groups of machines that a client or a deploy makes for one task."""
MOST_TEXT = 4000
MOST_SLOTS = 2000
"""Machines that one deploy moves."""


class DeployScope(ValueObject, frozen=True, kw_only=True):
    """The part of an app that a deploy touches; None is all. `update_only`: machines that are there, and no other."""

    only_machines: Collection[str] | None = None
    exclude_machines: Collection[str] | None = None
    only_regions: Collection[str] | None = None
    exclude_regions: Collection[str] | None = None
    process_groups: Collection[str] | None = None
    update_only: bool = False

    def has_group(self, group: str) -> bool:
        return self.process_groups is None or group in self.process_groups

    def has_region(self, region: str | None) -> bool:
        named = self.only_regions is None or region in self.only_regions
        return named and region not in (self.exclude_regions or ())

    def has(self, row: "_Row") -> bool:
        named = self.only_machines is None or row.id in self.only_machines
        spared = row.id in (self.exclude_machines or ())
        return named and not spared and self.has_group(row.group) and self.has_region(row.region)

    def has_away(self, machine: Machine) -> bool:
        """Whether a machine whose host is away is in the scope. Where its group is not known, a scope that names groups
        leaves it out."""
        named = self.only_machines is None or machine.id in self.only_machines
        spared = machine.id in (self.exclude_machines or ())
        group = _group_of(machine)
        grouped = self.process_groups is None or (group is not None and self.has_group(group))
        return named and not spared and grouped and self.has_region(machine.region)

    def makes(self, region: str | None) -> bool:
        """Whether a group that has no machine gets one there."""
        return not self.update_only and self.only_machines is None and self.has_region(region)


class WantedRelease(ValueObject, frozen=True, kw_only=True):
    """The release that is to be: the app's file, one config for each of its groups, and how to get there. `now` is Unix
    seconds. `counts`, if there are any, are all that is to change, and `scope` narrows the rest. `unfinished` are
    versions of bluegreen releases that a client drove by itself and did not bring to their end."""

    app: str
    """The name of the app."""
    version: int
    """The number of the release."""
    config: AppConfig
    configs: Mapping[str, MachineConfig]
    strategy: str
    """The strategy, `rolling`, `canary`, `bluegreen` or `immediate`: which machines are changed when."""
    ha: bool
    """A new group with services and without volumes gets two machines; any other gets one."""
    now: float
    counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    scope: DeployScope = DeployScope()
    unfinished: Collection[str] = ()


class DeployPlan(ValueObject, frozen=True):
    """`alone` counts machines that are of no process group, `away` names those that the deploy would touch, were their
    host not away. `waiting` are groups that have no machine but those: none is made for them."""

    slots: tuple[SlotRecord, ...]
    alone: int
    away: tuple[str, ...]
    waiting: tuple[str, ...] = ()


def planned(wanted: WantedRelease, machines: Sequence[Machine]) -> DeployPlan:
    """`machines` are all of the app. Raises `Unprocessable` with every reason at once."""
    away = tuple(each.id for each in machines if each.host_status != "ok" and wanted.scope.has_away(each))
    there = [each for each in machines if each.state not in GONE and each.host_status == "ok"]
    mine = {each.id: group for each in there if (group := _group_of(each)) is not None}
    alone = sum(each.id not in mine and not is_passing(each) for each in there)
    rows = [_Row.of(each, mine[each.id]) for each in sorted(there, key=lambda each: each.id) if each.id in mine]
    gone = Counter(_group_of(each) for each in machines if each.state not in GONE and each.host_status != "ok")
    refused = _refusals(wanted, rows) + _excluded(wanted, rows, gone)
    if away and not limits_of(wanted.config).skip_unreachable:
        refused.append(f'the hosts of machines {", ".join(away)} are away, and `unreachable` is "fail"')
    if refused:
        raise Unprocessable("; ".join(refused)[:MOST_TEXT])
    waiting = tuple(group for group in wanted.configs if gone[group] and all(row.group != group for row in rows))
    slots = _slots(wanted, rows, gone)
    return DeployPlan(tuple(replace(slot, number=number) for number, slot in enumerate(slots)), alone, away, waiting)


class _Row(ValueObject, frozen=True):
    """A machine of a group, as far as a deploy looks at it."""

    id: str
    group: str
    region: str
    version: str
    config: MachineConfig
    state: State
    cordoned: bool = False

    @staticmethod
    def of(machine: Machine, group: str) -> "_Row":
        config = machine.config or MachineConfig()
        return _Row(machine.id, group, machine.region, machine.version, config, machine.state, machine.cordoned)

    @property
    def is_warm(self) -> bool:
        """Anything that runs or is about to."""
        return self.state not in (State.STOPPED, State.SUSPENDED, State.STOPPING, State.SUSPENDING)

    @property
    def before(self) -> SlotBefore:
        return SlotBefore(version=self.version, config=self.config, started=self.is_warm)


def is_passing(machine: Machine) -> bool:
    """Whether a client or a deploy made the machine for one task, after which it goes."""
    metadata = _metadata(machine)
    return metadata.get(GROUP) in _OF_CLIENTS or metadata.get("process_group") in _OF_CLIENTS


def _group_of(machine: Machine) -> str | None:
    """None for a machine that no client that deploys has made."""
    metadata = _metadata(machine)
    if any(metadata.get(key) != value for key, value in PLATFORM.items()) or is_passing(machine):
        return None
    return metadata.get(GROUP) or metadata.get("process_group") or "app"


def _metadata(machine: Machine) -> Mapping[str, str]:
    config = machine.config or machine.incomplete_config
    return (config.metadata if config else None) or {}


def _refusals(wanted: WantedRelease, rows: Sequence[_Row]) -> list[str]:
    said = [
        f"counts: the app has no process group {group!r:.80}; it has {', '.join(wanted.configs)}"
        for group in wanted.counts
        if group not in wanted.configs
    ]
    said += [
        f"counts: {group!r:.80} cannot have {count} machines: from 0 to {MOST_SLOTS}"
        for group, count in wanted.counts.items()
        if group in wanted.configs and not 0 <= count <= MOST_SLOTS
    ]
    if sum(wanted.counts.values()) > MOST_SLOTS:
        said.append(f"counts: one deploy moves at most {MOST_SLOTS} machines")
    for group in wanted.scope.process_groups or ():
        if group not in wanted.configs and all(row.group != group for row in rows):
            said.append(f"process_groups: the app has no process group {group!r:.80}")
    known = {row.id for row in rows}
    for machine in wanted.scope.only_machines or ():
        if machine not in known:
            said.append(f"only_machines: no machine {machine!r:.80} of the app is there and of a process group")
    rows = [row for row in rows if wanted.scope.has(row)]
    for group, config in wanted.configs.items():
        mounted = bool(config.mounts)
        if mounted and wanted.strategy in ("canary", "bluegreen"):
            said.append(f"group {group!r} has volumes, which the new machines of {wanted.strategy} cannot have")
        if wanted.strategy == "bluegreen" and not checks(config):
            said.append(f"bluegreen needs a check to know when the new machines of group {group!r} are ready")
        for row in rows:
            if row.group == group and _volume_names(row.config) != _volume_names(config):
                said.append(
                    f"machine {row.id} of group {group!r} has other volumes than the file says: a volume cannot be put"
                    " into a machine or taken out of it; destroy the machine first"
                )
    return said


def _excluded(wanted: WantedRelease, rows: Sequence[_Row], gone: Mapping[str | None, int]) -> list[str]:
    """What the file says and the containers exclude that a machine keeps, or hands on to new ones."""
    said = []
    for row in _overlaid_rows(wanted, rows, gone):
        config = wanted.configs.get(row.group)
        if config is not None and row.config.containers and _volume_names(row.config) == _volume_names(config):
            found = complaints(overlaid(config, row.config))
            said += [f"machine {row.id} of group {row.group!r} keeps its containers: {each}" for each in found]
    return said


def _overlaid_rows(wanted: WantedRelease, rows: Sequence[_Row], gone: Mapping[str | None, int]) -> list[_Row]:
    """Those that are updated, or that new machines are made like."""
    doubled = _doubled(wanted.unfinished, rows)
    rows = [row for row in rows if row.id not in doubled]
    if not wanted.counts:
        return [row for row in rows if wanted.scope.has(row)]
    found = []
    for group, count in wanted.counts.items():
        mine = _warm_first([row for row in rows if row.group == group])
        if count > len(mine) + gone.get(group, 0):
            found += mine[:1]
    return found


def _volume_names(config: MachineConfig) -> list[str | None]:
    return [mount.name for mount in config.mounts or ()]


def _slots(wanted: WantedRelease, rows: Sequence[_Row], gone: Mapping[str | None, int]) -> list[SlotRecord]:
    """`gone` are how many machines of a group are on hosts that are away: they are there, and are not made again."""
    doubled = _doubled(wanted.unfinished, rows)
    slots = [_destroyed(wanted, row) for row in rows if row.id in doubled]
    rows = [row for row in rows if row.id not in doubled]
    for group, count in wanted.counts.items():
        mine = _warm_first([row for row in rows if row.group == group])
        slots += [_another(wanted, group, mine) for _ in range(count - len(mine) - gone.get(group, 0))]
        slots += [_destroyed(wanted, row) for row in mine[count:]]
    if wanted.counts:
        return slots
    scope, region = wanted.scope, wanted.config.primary_region
    touched = [row for row in rows if scope.has(row)]
    for group, config in wanted.configs.items():
        mine = [row for row in touched if row.group == group]
        if not any(row.group == group for row in rows):
            if not gone.get(group) and scope.has_group(group) and scope.makes(region):
                slots += [_created(wanted, group, config, region) for _ in _first(wanted, config)]
        elif mine and wanted.strategy == "bluegreen":
            slots += _green(wanted, mine, config)
        elif mine:
            if wanted.strategy == "canary":
                slots.append(_canary(wanted, mine[0], config))
            slots += _second(wanted, mine, config)
            slots += [_updated(wanted, row, config) for row in _warm_first(mine)]
    if not scope.update_only:
        slots += [_destroyed(wanted, row) for row in touched if row.group not in wanted.configs]
    return slots


def _doubled(unfinished: Collection[str], rows: Sequence[_Row]) -> set[str]:
    """What a client that was killed in a bluegreen deploy of its own left of one generation beside the other. Of each
    group the larger one stays, else the one that requests reach, else the one that was to be replaced: the deploy
    brings it to its release."""
    left: set[str] = set()
    for group in {row.group for row in rows}:
        mine = [row for row in rows if row.group == group]
        green = [row for row in mine if _is_green(unfinished, row)]
        blue = [row for row in mine if row not in green]
        if green and blue:
            left |= {row.id for row in (blue if _precedence(green) > _precedence(blue) else green)}
    return left


def _is_green(unfinished: Collection[str], row: _Row) -> bool:
    metadata = row.config.metadata or {}
    return _BLUEGREEN in metadata and metadata.get(RELEASE) in unfinished


def _precedence(generation: Sequence[_Row]) -> tuple[int, int]:
    return len(generation), sum(not row.cordoned for row in generation)


def _another(wanted: WantedRelease, group: str, like: Sequence[_Row]) -> SlotRecord:
    """Of the group, in the region of the first one that is there."""
    region = like[0].region if like else wanted.config.primary_region
    return _created(wanted, group, wanted.configs[group], region, like=like[0] if like else None)


def _first(wanted: WantedRelease, config: MachineConfig) -> range:
    """As many machines as a new group gets."""
    return range(2 if wanted.ha and config.services and not config.mounts else 1)


def _warm_first(rows: Sequence[_Row]) -> list[_Row]:
    return sorted(rows, key=lambda row: (not row.is_warm, row.region, row.id))


def _green(wanted: WantedRelease, blue: Sequence[_Row], config: MachineConfig) -> list[SlotRecord]:
    """One for each blue machine. Where none runs, the first of them runs all the same, to be proven."""
    cold = not any(row.is_warm for row in blue)
    made = [
        _created(
            wanted, row.group, config, row.region, launch=row.is_warm or (cold and not index), like=row, cordoned=True
        )
        for index, row in enumerate(blue)
    ]
    return [*made, *(_destroyed(wanted, row) for row in blue)]


def _created(
    wanted: WantedRelease,
    group: str,
    config: MachineConfig,
    region: str | None,
    *,
    launch: bool = True,
    like: _Row | None = None,
    cordoned: bool = False,
) -> SlotRecord:
    full = stamped(wanted, _like(like, config) if like else config)
    return SlotRecord(
        number=0,
        kind=SlotKind.CREATE,
        group=group,
        region=region,
        config=full,
        launch=launch,
        cordoned=cordoned,
        at=wanted.now,
    )


def _like(row: _Row, config: MachineConfig) -> MachineConfig:
    """Of a machine that is made beside `row`, or in its place: it gets no volume of the other."""
    return replace(overlaid(config, row.config), mounts=config.mounts)


def _canary(wanted: WantedRelease, row: _Row, config: MachineConfig) -> SlotRecord:
    """It is what the others will be, and is destroyed by the deploy and nothing else."""
    passing = replace(_like(row, config), schedule=None, standbys=None, auto_destroy=None)
    made = _created(wanted, row.group, passing, row.region)
    return replace(made, kind=SlotKind.CANARY, cordoned=True)


def _second(wanted: WantedRelease, rows: Sequence[_Row], config: MachineConfig) -> list[SlotRecord]:
    """Of a group that has one machine, where it is to have one that serves all the while: it is in routing, proves
    itself first, and goes in the end."""
    warm = [row for row in rows if row.is_warm]
    gated = wanted.strategy in ("rolling", "canary")
    if not (_own(wanted.config).surge and gated and len(warm) == 1 and not config.mounts):
        return []
    made = _created(wanted, warm[0].group, config, warm[0].region, like=warm[0])
    return [replace(made, kind=SlotKind.CANARY)]


def _updated(wanted: WantedRelease, row: _Row, config: MachineConfig) -> SlotRecord:
    return SlotRecord(
        number=0,
        kind=SlotKind.UPDATE,
        group=row.group,
        region=row.region,
        machine=row.id,
        config=stamped(wanted, overlaid(config, row.config)),
        launch=row.is_warm,
        before=row.before,
        at=wanted.now,
    )


def _destroyed(wanted: WantedRelease, row: _Row) -> SlotRecord:
    return SlotRecord(
        number=0,
        kind=SlotKind.DESTROY,
        group=row.group,
        region=row.region,
        machine=row.id,
        cordoned=row.cordoned,
        before=row.before,
        at=wanted.now,
    )


def stamped(wanted: WantedRelease, config: MachineConfig) -> MachineConfig:
    """The config with the metadata of the release that it is of."""
    release = {RELEASE: str(wanted.version), RELEASE_ID: f"{wanted.app}.{wanted.version}"}
    return replace(config, metadata={**(config.metadata or {}), **release})


def is_group(machine: Machine) -> bool:
    """Whether a client that deploys has made it, to stay."""
    return _group_of(machine) is not None


def is_of(config: MachineConfig | None, version: int) -> bool:
    """Whether a machine's config is that of this release."""
    return ((config.metadata if config else None) or {}).get(RELEASE) == str(version)


# How a deploy is paced, as the file says.


def limits_of(config: AppConfig, strategy: str = "rolling") -> DeployLimits:
    """An immediate deploy is not taken back unless the file says so."""
    usual, given, own = DeployLimits(), config.deploy, _own(config)
    auto_rollback = config.experimental.auto_rollback if config.experimental else None
    asked = own.rollback if own.rollback is not None else auto_rollback
    return DeployLimits(
        max_unavailable=(given.max_unavailable if given else None) or usual.max_unavailable,
        wait_s=seconds_of(given.wait_timeout if given else None, usual.wait_s),
        smoke_s=seconds_of(own.smoke, usual.smoke_s),
        smoke_rest_s=seconds_of(own.smoke_rest, usual.smoke_rest_s),
        rollback=strategy != "immediate" if asked is None else asked,
        skip_unreachable=own.unreachable != "fail",
        bake_s=seconds_of(own.bake, usual.bake_s),
        keep_blue_s=seconds_of(own.keep_blue, usual.keep_blue_s),
    )


def _own(config: AppConfig) -> HawkerDeploy:
    return (config.hawker.deploy if config.hawker else None) or HawkerDeploy()


def seconds_of(text: str | None, usual: float) -> float:
    return usual if text is None else parse_duration(text)


def waves_of(wanted: WantedRelease, slots: Sequence[SlotRecord]) -> tuple[tuple[str, ...], ...]:
    """The regions whose machines are updated one after the other; none where there is one wave. As the file says, and
    regions that it does not name last. Else the region with the fewest machines goes first, which is not the primary
    one, and all others after it."""
    warm = Counter(slot.region or "" for slot in slots if slot.kind is SlotKind.UPDATE and slot.launch)
    if wanted.strategy not in ("rolling", "canary") or len(warm) < 2:
        return ()
    said = _own(wanted.config).waves
    if said is None:
        others = [region for region in sorted(warm) if region != wanted.config.primary_region]
        said = ((min(others, key=lambda region: warm[region]),),)
    named = [tuple(region for region in wave if region in warm) for wave in said]
    rest = tuple(sorted(set(warm) - {region for wave in named for region in wave}))
    waves = tuple(filter(None, (*named, rest)))
    return waves if len(waves) > 1 else ()


def budget(limit: float, warm: int) -> int:
    """The number of a group's machines that may be away at once: at least one."""
    share = limit if limit >= 1 else ceil(warm * limit)
    return max(1, min(int(share), max(warm, 1)))


def warnings_of(config: AppConfig, configs: Mapping[str, MachineConfig], strategy: str) -> tuple[str, ...]:
    """The sentences about what the file asks for and does not get. `configs` are those of its process groups;
    `strategy` is the deploy's, which need not be the file's."""
    said = []
    if _own(config).keep_blue is not None and strategy != "bluegreen":
        said.append("hawker.deploy.keep_blue: it counts for bluegreen alone")
    said.extend(dict.fromkeys(sentence for each in configs.values() for sentence in kept_only(each)))
    return tuple(said)


def needs_certificate(config: MachineConfig) -> bool:
    """Whether a port sends clients to HTTPS, where only a certificate answers them."""
    ports = [port for service in config.services or () for port in service.ports or ()]
    signed = any(port.tls_options is not None and port.tls_options.default_self_signed for port in ports)
    return not signed and any(port.force_https for port in ports)


def heads_of(slots: Sequence[SlotRecord], left: Sequence[SlotRecord]) -> list[list[SlotRecord]]:
    """The slots of `left` that go alone: the first one, unless one has proven itself, and then the first of each region
    in which none has."""
    proven = {slot.region for slot in slots if slot.launch and slot.state is SlotState.DONE}
    first: dict[str | None, SlotRecord] = {}
    for slot in sorted(left, key=lambda slot: not slot.launch):
        if slot.region not in proven:
            first.setdefault(slot.region, slot)
    heads = [slot for slot in first.values() if slot.launch or not proven]
    return [heads] if proven else [heads[:1], heads[1:]]

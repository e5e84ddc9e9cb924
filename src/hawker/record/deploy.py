"""Deploys as they are stored at the app's home: what was decided when one was accepted, and how far each machine is."""

from enum import StrEnum

import msgspec

from hawker.config import MachineConfig
from hawker.fsm.contract import Resource
from hawker.ids import AppName, NodeId
from hawker.store.contract import Bucket


class SlotKind(StrEnum):
    """What the deploy does with a slot's machine. A canary is made, proven and destroyed before all else."""

    UPDATE = "update"
    CREATE = "create"
    DESTROY = "destroy"
    CANARY = "canary"


class SlotState(StrEnum):
    """The state of a slot. `skipped`: its machine's host is away; `left`: it could not be taken back."""

    WAITING = "waiting"
    CHANGING = "changing"
    PROVING = "proving"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    RETURNING = "returning"
    RETURNED = "returned"
    LEFT = "left"


class DeployWish(StrEnum):
    """What a person asked of a deploy that is under way. `abort` takes it back, `stop` leaves machines as they are."""

    NOTHING = ""
    PAUSE = "pause"
    ABORT = "abort"
    STOP = "stop"


class DeployLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a deploy. `max_unavailable` is how many machines change at once: a count from 1 on, a share of them
    below 1. `wait_s` is for each health gate that can take long, `smoke_s` how long the first machine of a group must
    stay up, `smoke_rest_s` each other one; all in seconds. `rollback`: a health gate that fails takes the deploy back.
    `skip_unreachable`: a machine whose host is away does not stop it. `bake_s` is for how many seconds the machines of
    a wave are watched before the next one begins, `keep_blue_s` for how many seconds old machines of a bluegreen deploy
    are kept at rest before they go."""

    max_unavailable: float = 0.33
    wait_s: float = 300.0
    smoke_s: float = 10.0
    smoke_rest_s: float = 3.0
    rollback: bool = True
    skip_unreachable: bool = True
    bake_s: float = 30.0
    keep_blue_s: float = 0.0


class DeployTask(msgspec.Struct, frozen=True, kw_only=True):
    """A program that runs once, in a machine of its own beside those of the app, and must exit with 0 within
    `timeout_s` seconds. `group` is the process group whose first machine it checks, empty for a command. `machine` is
    its id once it is ordered; `exit_code` is known once it has ended."""

    config: MachineConfig
    region: str | None  # region where its machine is to run; None leaves that to the market
    timeout_s: float
    group: str = ""
    machine: str = ""
    exit_code: int | None = None


class DeployRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One deploy, of the release of its version, whose status tells how it ended. `serial` rises with each change of
    the deploy or of one of its slots. `command` and `seed` run before any machine is changed, `checks` against the
    first one of each group. `stage` is what it does now and `error` what went wrong, both for people. `alone` counts
    machines of the app that are of no process group, which no deploy touches. `voters` are the nodes that keep the
    deploy's register; with fewer than three the app's home keeps the deploy alone. `term` is the last one that a
    majority of them granted, 0 before; `coordinator` is whose term that is. `inherited`: another node was it before,
    and the run of this one has not begun anew since. `kept`: a majority has the deploy. `waves`
    are the regions whose machines are updated one after the other, none where all are at once; of them `baked` were
    watched to their end, and the next is watched until `baked_at`, when it is. `blue_until`: the old machines of a
    bluegreen deploy are kept at rest until then. `blue_untouched`: none of those was told to leave routing yet; false
    also in records from before there was the field. `no_way_back`: old machines go, and nothing is taken back any more;
    it stays true, whoever coordinates the deploy. `behind` are machines whose host was away when it was accepted.
    Times are Unix seconds."""

    version: int  # number of the release that is deployed, 1 or more
    strategy: str  # `rolling`, `canary`, `bluegreen` or `immediate`, as in the release
    limits: DeployLimits
    command: DeployTask | None = None
    seed: DeployTask | None = None
    checks: tuple[DeployTask, ...] = ()
    asked: DeployWish = DeployWish.NOTHING
    stage: str = ""
    error: str = ""
    alone: int = 0
    serial: int = 1
    voters: tuple[NodeId, ...] = ()
    term: int = 0
    coordinator: NodeId = NodeId("")
    inherited: bool = False
    kept: bool = False
    waves: tuple[tuple[str, ...], ...] = ()
    baked: int = 0
    baked_at: float | None = None
    blue_until: float | None = None
    blue_untouched: bool = False
    no_way_back: bool = False
    behind: tuple[str, ...] = ()
    began_at: float
    ended_at: float | None = None

    @property
    def is_replicated(self) -> bool:
        return bool(self.voters)


class SlotBefore(msgspec.Struct, frozen=True, kw_only=True):
    """The machine as it was when the deploy was accepted; going back restores it."""

    version: str  # the machine's version, a ULID
    config: MachineConfig
    started: bool  # the machine was running, and is to run again after going back


class SlotRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One machine's place in a deploy. `machine` is its id, empty until it is made; `config` what it is to have, None
    for one that goes; `launch`: it is to run and has to prove itself. `cordoned`: it is made outside of routing,
    or was found so. `version` is the machine's version that this deploy made, `at` Unix seconds of the last change."""

    number: int  # place of the slot in the plan, 0 or more; part of the key
    kind: SlotKind
    group: str  # name of the process group that its machine is of
    region: str | None  # region where its machine is or is to be; None leaves that to the market
    machine: str = ""
    config: MachineConfig | None = None
    launch: bool = True
    cordoned: bool = False
    before: SlotBefore | None = None
    state: SlotState = SlotState.WAITING
    version: str = ""
    text: str = ""  # reason why it failed, was skipped or left, for people; empty otherwise
    at: float


class RegisterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one voter keeps of a deploy. `granted` is the greatest term that it granted, to `holder`. `state` is the
    deploy itself, sealed for nodes of the cluster, as the coordinator of `term` wrote it with this `number`. `at` is
    when that was, by this node's clock, Unix seconds."""

    app: AppName
    version: int  # number of the release that is deployed, 1 or more
    voters: tuple[NodeId, ...]
    granted: int = 0
    holder: NodeId = NodeId("")
    term: int = 0
    number: int = 0
    state: bytes = b""
    ended: bool = False  # the deploy has ended: nothing is written any more
    at: float = 0.0


class DeployTermRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The greatest term of an app's deploys that this node was told of: what comes of an earlier one changes nothing
    here. The release's version counts first."""

    version: int  # number of the release that is deployed, 1 or more
    term: int  # the greatest term, 1 or more; rises with each coordinator


DEPLOY_KIND = "deploy"
"""Of the resource of a deploy's run, whose id is the app's name."""

DEPLOYS = Bucket("deploys", DeployRecord)  # app/version, in ten digits
DEPLOY_SLOTS = Bucket("deploy_slots", SlotRecord)  # app/version, in ten digits/number, in five

DEPLOY_REGISTERS = Bucket("deploy_registers", RegisterRecord)  # the app's id/version, in ten digits
DEPLOY_TERMS = Bucket("deploy_terms", DeployTermRecord)  # the app's id


def deploy_key(app: str, version: int) -> str:
    return f"{app}/{version:010d}"


def slot_key(app: str, version: int, number: int) -> str:
    return f"{deploy_key(app, version)}/{number:05d}"


def deploy_resource(app: str) -> Resource:
    return Resource(kind=DEPLOY_KIND, id=app)

"""Bodies about deploys: bringing an app's machines to what its fly.toml says, as a run of the app's home."""

from datetime import datetime
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.route import Tag, Unary
from hawker.errors import Conflict, NoRoom, NotFound, Unavailable, Unprocessable, WrongState
from hawker.permission import Action

Strategy: TypeAlias = Literal["rolling", "canary", "bluegreen", "immediate"]
MOST_WAIT_S = 30.0


class CreateDeployRequest(Request, frozen=True, kw_only=True):
    """`definition` is the app's fly.toml as a JSON object, at most 256 KiB; its files have their content in
    `raw_value`, since the node has no local paths. `image` and `strategy` win over the file's. With `ha`, as unless
    told, a new group that has services and no volumes gets two machines, else one. `counts` is how many machines groups
    are to have: then machines are made or destroyed for that, and no other machine is touched. `only_machines` and
    `exclude_machines` (ids), `only_regions`, `exclude_regions` and `process_groups` narrow what is touched, as they do
    for flyctl; with `update_only` no machine is made for a group that has none, and none of a group that the file lacks
    is destroyed. `skip_release_command`: it is not run. With `dry_run` nothing is done, and the answer is what would
    be. `lax` takes keys that nobody knows. `supersede` ends a deploy of the app that is under way, and leaves machines
    where they are for this one. `label` is a word for whoever reads the list, at most 2,000 characters."""

    definition: dict[str, Any] | None = None
    image: str | None = None
    strategy: Strategy | None = None
    ha: bool | None = None
    counts: dict[str, int] | None = None
    only_machines: tuple[str, ...] | None = None
    exclude_machines: tuple[str, ...] | None = None
    only_regions: tuple[str, ...] | None = None
    exclude_regions: tuple[str, ...] | None = None
    process_groups: tuple[str, ...] | None = None
    update_only: bool | None = None
    skip_release_command: bool | None = None
    dry_run: bool | None = None
    lax: bool | None = None
    supersede: bool | None = None
    label: str | None = None


class DeploySlot(Answer, frozen=True, kw_only=True):
    """One machine's place in a deploy. `kind` is update, create, destroy or canary; `state` waiting, changing, proving,
    done, skipped, failed, returning, returned or left; `text` is for people. `machine_id` is empty until there is
    one."""

    number: int
    """The slot's place in the deploy's plan, 0 or more; it stays the same through the deploy."""
    kind: str
    group: str
    """The name of the process group that the slot's machine is of."""
    region: str | None
    """The code of the region where the slot's machine is or is to be; null: the market chooses one."""
    machine_id: str
    state: str
    text: str
    at: datetime


class DeployInfo(Answer, frozen=True, kw_only=True):
    """`status` is that of the release: running, paused, rolling_back, complete, failed, rolled_back or interrupted;
    `planned` for a dry run. `serial` rises with each change. `stage` is what is done now, `error` what went wrong.
    `alone` counts the app's machines that are of no process group, which no deploy touches. `coordinator` is the node
    that drives it and `voters` are those that keep its state, by their ids; both are empty where the app's home does so
    alone. `slots` are those of one deploy, which a list leaves out."""

    app_name: str
    """The name of the app that is deployed."""
    version: int
    """The number of the release, 1 or more."""
    status: str
    strategy: str
    """The strategy of the deploy: `rolling`, `canary`, `bluegreen` or `immediate`."""
    image: str
    """The reference of the image that the machines run, as the release names it."""
    user: str
    """The name of the token that ordered it."""
    label: str
    """The `label` of the order, for people; empty where the order gave none."""
    stage: str
    error: str
    serial: int
    alone: int
    coordinator: str = ""
    voters: tuple[str, ...] = ()
    began_at: datetime
    ended_at: datetime | None = None
    slots: tuple[DeploySlot, ...] = ()
    warnings: tuple[str, ...] = ()
    """Sentences for people: each names something of the app's file that has no effect here."""


class DeployList(Answer, frozen=True, kw_only=True):
    """The app's deploys, newest first."""

    deploys: tuple[DeployInfo, ...]


# Calls about deploys.


class DeployParams(msgspec.Struct, frozen=True, kw_only=True):
    """`version` is the release's number, or `latest`."""

    app_name: str
    """The name of the app that is deployed."""
    version: str


class GetDeployQuery(msgspec.Struct, frozen=True, kw_only=True):
    """With `after`, the answer waits for a serial above it, `wait` seconds at most."""

    after: int | None = None
    wait: Annotated[float, msgspec.Meta(ge=0, le=MOST_WAIT_S)] = 0.0


class AbortDeployRequest(Request, frozen=True, kw_only=True):
    """`keep` leaves every machine as it is; else what was changed is taken back."""

    keep: bool = False


_ALL = "/hawker/v1/apps/{app_name}/deploys"

CREATE_DEPLOY = Unary(
    name="create_deploy",
    method="POST",
    path=_ALL,
    params=AppParams,
    body=CreateDeployRequest,
    response=DeployInfo,
    tag=Tag.APPS,
    summary="Bring an app's machines to what its fly.toml says",
    status=201,
    errors=(NotFound, Conflict, NoRoom, Unavailable, Unprocessable),
    action=Action.WRITE,
    strict=True,
    timeout_s=90.0,
)

LIST_DEPLOYS = Unary(
    name="list_deploys",
    method="GET",
    path=_ALL,
    params=AppParams,
    response=DeployList,
    tag=Tag.APPS,
    summary="List an app's deploys, newest first",
    errors=(NotFound,),
)

GET_DEPLOY = Unary(
    name="get_deploy",
    method="GET",
    path=f"{_ALL}/{{version}}",
    params=DeployParams,
    query=GetDeployQuery,
    response=DeployInfo,
    tag=Tag.APPS,
    summary="Show a deploy with its machines, or wait until it changes",
    errors=(NotFound,),
    timeout_s=MOST_WAIT_S + 30.0,
)

PAUSE_DEPLOY = Unary(
    name="pause_deploy",
    method="POST",
    path=f"{_ALL}/{{version}}/pause",
    params=DeployParams,
    response=DeployInfo,
    tag=Tag.APPS,
    summary="Begin with no further machine of a deploy until it is resumed",
    errors=(NotFound, WrongState),
)

RESUME_DEPLOY = Unary(
    name="resume_deploy",
    method="POST",
    path=f"{_ALL}/{{version}}/resume",
    params=DeployParams,
    response=DeployInfo,
    tag=Tag.APPS,
    summary="Go on with a paused deploy",
    errors=(NotFound, WrongState),
)

ABORT_DEPLOY = Unary(
    name="abort_deploy",
    method="POST",
    path=f"{_ALL}/{{version}}/abort",
    params=DeployParams,
    body=AbortDeployRequest,
    response=DeployInfo,
    tag=Tag.APPS,
    summary="End a deploy and take back what it changed",
    errors=(NotFound, WrongState),
    body_optional=True,
)

TAKE_DEPLOY = Unary(
    name="take_deploy",
    method="POST",
    path=f"{_ALL}/{{version}}/take",
    params=DeployParams,
    response=DeployInfo,
    tag=Tag.APPS,
    summary="Go on with a deploy whose state is at no majority any more",
    errors=(NotFound, WrongState, Unavailable),
    action=Action.CONTROL,
    timeout_s=60.0,
)

DEPLOY_ROUTES = (CREATE_DEPLOY, LIST_DEPLOYS, GET_DEPLOY, PAUSE_DEPLOY, RESUME_DEPLOY, ABORT_DEPLOY, TAKE_DEPLOY)


# Calls between nodes: the register that three voters keep of each deploy, and the terms of those who coordinate it. All
# are idempotent.

_PEER_S = 3.0
_ACTION = Action.READ
"""Nobody's deed: the log of who did what has the deploy itself, and not each word about it between nodes."""
MOST_STATE_BYTES = 1024 * 1024

_Term = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]


class RegisterParams(msgspec.Struct, frozen=True, kw_only=True):
    """`app_id` is the app's own, since an app of the same name may have been destroyed before."""

    app_id: str
    version: Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]{0,8}$")]

    @property
    def number(self) -> int:
        return int(self.version)


class RegisterAnswer(Answer, frozen=True, kw_only=True):
    """What the voter has in the register now. `granted` is the greatest term that it granted, to the node `holder`: a
    request of another term was refused. `state` is left out where it was written."""

    granted: int = 0
    holder: str = ""
    term: int = 0
    """The term in which `state` was written, 1 or more; 0 while nothing was written."""
    number: int = 0
    """The place of `state` among what was written in that term, 0 or more; the greatest counts."""
    state: bytes = b""
    ended: bool = False
    """True once the deploy has ended: the register takes nothing more."""


class GrantTermRequest(Request, frozen=True, kw_only=True):
    """`node` asks for `term`. `app` is the app's name, `voters` are all of the deploy."""

    app: str
    term: _Term
    node: str
    voters: tuple[str, ...]


class WriteRegisterRequest(Request, frozen=True, kw_only=True):
    """The coordinator of `term` writes `state`; without one its term is renewed, and nothing is written. `number`
    orders what is written in one term."""

    app: str
    """The name of the app that is deployed."""
    term: _Term
    node: str
    """The id of the coordinator."""
    voters: tuple[str, ...]
    """The ids of all voters of this deploy; a voter that keeps none yet takes these."""
    number: Annotated[int, msgspec.Meta(ge=0)] = 0
    state: bytes | None = None
    ended: bool = False
    """True when the deploy has ended: nothing is written after this."""


class AnnounceTermRequest(Request, frozen=True, kw_only=True):
    term: _Term


_REGISTER = "/internal/v1/deploys/{app_id}/{version}/register"

READ_REGISTER = Unary(
    name="read_deploy_register",
    method="GET",
    path=_REGISTER,
    params=RegisterParams,
    response=RegisterAnswer,
    tag=Tag.NODE,
    summary="Show what this voter keeps of a deploy",
    timeout_s=_PEER_S,
    answer_bytes=2 * MOST_STATE_BYTES,
)

GRANT_TERM = Unary(
    name="grant_deploy_term",
    method="POST",
    path=f"{_REGISTER}/terms",
    params=RegisterParams,
    body=GrantTermRequest,
    response=RegisterAnswer,
    tag=Tag.NODE,
    summary="Let a node coordinate a deploy, unless another one does",
    action=_ACTION,
    timeout_s=_PEER_S,
    answer_bytes=2 * MOST_STATE_BYTES,
)

WRITE_REGISTER = Unary(
    name="write_deploy_register",
    method="PUT",
    path=_REGISTER,
    params=RegisterParams,
    body=WriteRegisterRequest,
    response=RegisterAnswer,
    tag=Tag.NODE,
    summary="Keep a deploy as its coordinator has it",
    errors=(Unprocessable,),
    action=_ACTION,
    timeout_s=_PEER_S,
)

ANNOUNCE_TERM = Unary(
    name="announce_deploy_term",
    method="POST",
    path="/internal/v1/deploys/{app_id}/{version}/term",
    params=RegisterParams,
    body=AnnounceTermRequest,
    response=NoneType,
    tag=Tag.NODE,
    summary="Let nothing of an earlier term change a machine here",
    action=_ACTION,
    timeout_s=_PEER_S,
)

DEPLOY_PEER_ROUTES = (READ_REGISTER, GRANT_TERM, WRITE_REGISTER, ANNOUNCE_TERM)

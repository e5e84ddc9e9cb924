"""Bodies of the calls between nodes about deploys: the register that three voters keep of each deploy, and the terms of
those who drive one. All of them are idempotent.
"""

from types import NoneType
from typing import Annotated

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.route import Tag, Unary
from hawker.errors import Unprocessable
from hawker.permission import Action

_PEER_S = 3.0
MOST_STATE_BYTES = 1024 * 1024

_Term = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]


class RegisterParams(msgspec.Struct, frozen=True, kw_only=True):
    """`app_id` is the app's own, since an app of the same name may have been destroyed before."""

    app_id: str
    version: Annotated[int, msgspec.Meta(ge=1, le=999_999_999)]


class RegisterAnswer(Answer, frozen=True, kw_only=True):
    """What the voter has now. `granted` is the greatest term that it granted, to `holder`: a request of another term
    was refused. `state` is left out where it was written."""

    granted: int = 0
    holder: str = ""
    term: int = 0
    number: int = 0
    state: bytes = b""
    ended: bool = False


class GrantTermRequest(Request, frozen=True, kw_only=True):
    """`node` asks for `term`. `app` is the app's name, `voters` are all of the deploy."""

    app: str
    term: _Term
    node: str
    voters: tuple[str, ...]


class WriteRegisterRequest(Request, frozen=True, kw_only=True):
    """By the coordinator of `term`. Without `state` its term is renewed, and nothing is written. `number` orders what
    is written in one term."""

    app: str
    term: _Term
    node: str
    voters: tuple[str, ...]
    number: Annotated[int, msgspec.Meta(ge=0)] = 0
    state: bytes | None = None
    ended: bool = False


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
    action=Action.WRITE,
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
    action=Action.WRITE,
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
    action=Action.WRITE,
    timeout_s=_PEER_S,
)

DEPLOY_PEER_ROUTES = (READ_REGISTER, GRANT_TERM, WRITE_REGISTER, ANNOUNCE_TERM)

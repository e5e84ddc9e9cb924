"""Calls about tokens: what a token is good for, making one for an app, and ending one."""

from types import NoneType

from hawker.api.bodies import (
    AuthenticateRequest,
    AuthorizeAnswer,
    AuthorizeRequest,
    CurrentTokens,
    DeployToken,
    DeployTokenRequest,
    RevokedToken,
    RevokedTokens,
    RevokeTokenRequest,
    VerifiedToken,
)
from hawker.api.route import NoParams, NoQuery, Tag, Unary
from hawker.api.routes.apps import AppParams
from hawker.errors import Forbidden, NotFound, Unauthorized
from hawker.permission import Action

CURRENT_TOKENS = Unary(
    name="current_tokens",
    method="GET",
    path="/v1/tokens/current",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=CurrentTokens,
    tag=Tag.TOKENS,
    summary="Show what the caller's token allows",
    guarded=False,  # every token may ask about itself
)

AUTHENTICATE_TOKEN = Unary(
    name="authenticate_token",
    method="POST",
    path="/v1/tokens/authenticate",
    params=NoParams,
    query=NoQuery,
    body=AuthenticateRequest,
    response=tuple[VerifiedToken, ...],
    tag=Tag.TOKENS,
    summary="Check the tokens of an Authorization header",
    errors=(Unauthorized,),
    auth=False,
)

AUTHORIZE_TOKEN = Unary(
    name="authorize_token",
    method="POST",
    path="/v1/tokens/authorize",
    params=NoParams,
    query=NoQuery,
    body=AuthorizeRequest,
    response=AuthorizeAnswer,
    tag=Tag.TOKENS,
    summary="Check whether the tokens of an Authorization header allow something",
    errors=(Unauthorized, Forbidden),
    auth=False,
)

CREATE_DEPLOY_TOKEN = Unary(
    name="create_deploy_token",
    method="POST",
    path="/v1/apps/{app_name}/deploy_token",
    params=AppParams,
    query=NoQuery,
    body=DeployTokenRequest,
    response=DeployToken,
    tag=Tag.TOKENS,
    summary="Make a token for this app only",
    errors=(NotFound,),
    action=Action.CONTROL,
    body_optional=True,
)

REVOKE_TOKEN = Unary(
    name="revoke_token",
    method="POST",
    path="/hawker/v1/tokens/revoked",
    params=NoParams,
    query=NoQuery,
    body=RevokeTokenRequest,
    response=RevokedToken,
    tag=Tag.TOKENS,
    summary="Revoke a token and all tokens narrowed from it",
    guarded=False,  # whoever holds a token may end it; by its id alone, only who controls the node
)

LIST_REVOKED = Unary(
    name="list_revoked",
    method="GET",
    path="/hawker/v1/tokens/revoked",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=RevokedTokens,
    tag=Tag.TOKENS,
    summary="List the revoked tokens",
)

TOKEN_ROUTES = (
    CURRENT_TOKENS,
    AUTHENTICATE_TOKEN,
    AUTHORIZE_TOKEN,
    CREATE_DEPLOY_TOKEN,
    REVOKE_TOKEN,
    LIST_REVOKED,
)

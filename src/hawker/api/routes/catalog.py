"""Calls that read the catalog of a cluster. For operators: not part of the Machines API."""

from hawker.api.bodies import CatalogLine, CatalogStatement
from hawker.api.route import NoParams, NoQuery, Stream, Tag
from hawker.errors import DeadlineExceeded, Fault, NotServed, Unavailable
from hawker.permission import Action

QUERY_CATALOG = Stream(
    name="query_catalog",
    method="POST",
    path="/hawker/v1/catalog/query",
    params=NoParams,
    query=NoQuery,
    body=CatalogStatement,
    response=CatalogLine,
    tag=Tag.NODE,
    summary="Ask the catalog with a SELECT",
    errors=(NotServed, Unavailable, DeadlineExceeded, Fault),
    action=Action.READ,
    strict=True,
)

SUBSCRIBE_CATALOG = Stream(
    name="subscribe_catalog",
    method="POST",
    path="/hawker/v1/catalog/subscribe",
    params=NoParams,
    query=NoQuery,
    body=CatalogStatement,
    response=CatalogLine,
    tag=Tag.NODE,
    summary="Ask the catalog with a SELECT, and hear of each change of the answer",
    errors=(NotServed, Unavailable, DeadlineExceeded, Fault),
    action=Action.READ,
    strict=True,
)

CATALOG_ROUTES = (QUERY_CATALOG, SUBSCRIBE_CATALOG)

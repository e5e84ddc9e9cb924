"""Calls about the node itself and its regions."""

from types import NoneType

from hawker.api.bodies import Health, NodeInfo, RegionList
from hawker.api.route import NoParams, NoQuery, Tag, Unary

HEALTH = Unary(
    name="health",
    method="GET",
    path="/hawker/v1/health",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=Health,
    tag=Tag.NODE,
    summary="Whether the node answers",
    auth=False,
)

NODE_INFO = Unary(
    name="node_info",
    method="GET",
    path="/hawker/v1/node",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=NodeInfo,
    tag=Tag.NODE,
    summary="Show the node's capacity and use",
)

METRICS = Unary(
    name="metrics",
    method="GET",
    path="/metrics",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=str,
    tag=Tag.NODE,
    summary="Metrics of the node, for Prometheus",
    media="text/plain; version=0.0.4; charset=utf-8",
)

MACHINE_METRICS = Unary(
    name="machine_metrics",
    method="GET",
    path="/metrics/machines",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=str,
    tag=Tag.NODE,
    summary="Metrics of the machines, for Prometheus, with labels of app and machine",
    media="text/plain; version=0.0.4; charset=utf-8",
)

LIST_REGIONS = Unary(
    name="list_regions",
    method="GET",
    path="/v1/platform/regions",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=RegionList,
    tag=Tag.PLATFORM,
    summary="List regions",
    auth=False,
)

NODE_ROUTES = (
    HEALTH,
    NODE_INFO,
    METRICS,
    MACHINE_METRICS,
    LIST_REGIONS,
)

"""Calls about what is wrong on the node, and for a copy of its store. For operators: not part of the Machines API."""

from types import NoneType

from hawker.api.bodies import BackupPart, FindingList, RepairRequest
from hawker.api.route import NoParams, NoQuery, Stream, Tag, Unary
from hawker.errors import NotServed, Unavailable
from hawker.permission import Action

LIST_FINDINGS = Unary(
    name="list_findings",
    method="GET",
    path="/internal/v1/findings",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=FindingList,
    tag=Tag.NODE,
    summary="Compare store and host, and report what is wrong",
    errors=(Unavailable,),
    timeout_s=120.0,
)

REPAIR_FINDINGS = Unary(
    name="repair_findings",
    method="POST",
    path="/internal/v1/findings/repair",
    params=NoParams,
    query=NoQuery,
    body=RepairRequest,
    response=FindingList,
    tag=Tag.NODE,
    summary="Compare store and host, and repair what is wrong",
    errors=(Unavailable,),
    action=Action.ALL,
    body_optional=True,
    strict=True,
    timeout_s=300.0,
)

BACK_UP = Stream(
    name="back_up",
    method="GET",
    path="/internal/v1/backup",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=BackupPart,
    tag=Tag.NODE,
    summary="Copy the node's store while it is in use",
    errors=(NotServed, Unavailable),
    action=Action.ALL,
)

DOCTOR_ROUTES = (LIST_FINDINGS, REPAIR_FINDINGS, BACK_UP)

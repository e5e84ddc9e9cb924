"""Bodies about what is wrong on a node, and about copies of its store."""

from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Stream, Tag, Unary
from hawker.errors import NotServed, Unavailable
from hawker.permission import Action


class FindingInfo(Answer, frozen=True, kw_only=True):
    """`about` is a machine's id, or the name of what belongs to no machine. `repair` is what mends it, `by` who may do
    so: node (every minute), operator, force or nobody. `outcome` is set once a repair was asked for: mended, failed
    (`error` says why) or left."""

    kind: str
    about: str
    detail: str
    repair: str
    by: str
    outcome: str | None = None
    error: str | None = None


class FindingList(Answer, frozen=True, kw_only=True):
    findings: tuple[FindingInfo, ...]


class RepairRequest(Request, frozen=True, kw_only=True):
    """`end_foreign` also ends machines that another store has made, running or not."""

    end_foreign: bool | None = None


class BackupPart(Answer, frozen=True, kw_only=True):
    """A piece of a copy of the store; `data` is base64. The last one has no data, and says what the whole is."""

    data: bytes = b""
    size_bytes: int | None = None
    sha256: str | None = None


# Calls about what is wrong on the node, and for a copy of its store. For operators: not part of the Machines API.

LIST_FINDINGS = Unary(
    name="list_findings",
    method="GET",
    path="/internal/v1/findings",
    params=NoParams,
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
    response=BackupPart,
    tag=Tag.NODE,
    summary="Copy the node's store while it is in use",
    errors=(NotServed, Unavailable),
    action=Action.ALL,
)

DOCTOR_ROUTES = (LIST_FINDINGS, REPAIR_FINDINGS, BACK_UP)

"""Bodies about what is wrong on a node, and about copies of its store."""

from hawker.api.bodies.body import Answer, Request


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

"""Bodies about a machine's metadata."""

from hawker.api.bodies.body import Answer, Request


class UpdateMetadataRequest(Request, frozen=True, kw_only=True):
    """Null or "" removes a key; keys that are not named stay. A stale `machine_version` is refused."""

    metadata: dict[str, str | None] | None = None
    machine_version: str | None = None
    updated_at: str | None = None


class SetMetadataRequest(Request, frozen=True, kw_only=True):
    value: str
    updated_at: str | None = None


class MetadataValue(Answer, frozen=True, kw_only=True):
    value: str

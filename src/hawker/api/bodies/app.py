"""Bodies about apps."""

from hawker.api.bodies.body import Answer, Request


class Organization(Answer, frozen=True, kw_only=True):
    name: str
    slug: str
    internal_numeric_id: int = 0


class App(Answer, frozen=True, kw_only=True):
    """`status` is "pending" before the first machine, then "deployed". `created_at` is Unix milliseconds."""

    id: str
    internal_numeric_id: int
    name: str
    network: str
    status: str
    machine_count: int
    volume_count: int
    organization: Organization
    created_at: int


class AppList(Answer, frozen=True, kw_only=True):
    total_apps: int
    apps: tuple[App, ...]
    next_cursor: str | None = None


class CreateAppRequest(Request, frozen=True, kw_only=True):
    """`app_name` is the older spelling of `name`. `org_slug` is one organization on a self-hosted node."""

    name: str | None = None
    app_name: str | None = None
    org_slug: str | None = None
    network: str | None = None
    enable_subdomains: bool | None = None
    app_role_id: str | None = None
    idempotency_key: str | None = None

"""Machines as a list shows them: read without an event loop, and decoded only as far as they are shown.

A list is what people and scripts ask for most, and a client of the whole API takes four times as long to import as the
node takes to answer. So nothing here may import `hawker.api`; a test counts what `hawker machine list` loads.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from hawker.cli.access import Access
from hawker.cli.output import age, table, write
from hawker.cli.target import Target, find_node
from hawker.clock import SystemClock
from hawker.deferred import deferred
from hawker.errors import HawkerError
from hawker.http.blocking import get
from hawker.http.message import origin_of
from hawker.machine import State
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    import click
else:
    click = deferred("click")

T = TypeVar("T")

_PATIENCE_S = 5.0
_OK = "ok"
_MISSING = "hawker-missing-regions"
_PAGE = 500
_IMAGE_WIDTH = 19


class ShownImage(msgspec.Struct, frozen=True, kw_only=True):
    registry: str
    """Its host, empty for an image that is from none."""
    repository: str
    """Its path at the registry."""
    tag: str
    """Empty for none."""
    digest: str
    """Of the manifest."""


class ShownMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What a list shows of `api.contract.machine.Machine`."""

    id: str
    """14 hexadecimal digits."""
    name: str
    """Unique in its app."""
    state: State
    region: str
    """The code."""
    image_ref: ShownImage
    private_ip: str
    """An IPv6 address, the host's where machines have none."""
    created_at: datetime
    host_status: str = _OK
    """`ok`, or `unreachable`: then all else is what the node said last."""
    host: str | None = None
    """The id of its node; None from an older node."""


class Listed(ValueObject, frozen=True):
    """A machine and the app that it belongs to."""

    app: str
    """Its name."""
    machine: ShownMachine


class MachineSelection(ValueObject, frozen=True, kw_only=True):
    """Which machines: of one app, or of all when `app` is None; each other field left empty selects nothing."""

    app: str | None
    states: tuple[State, ...]
    region: str | None
    """One code."""
    metadata: tuple[tuple[str, str], ...]
    """Keys and values that a machine must all have."""
    everything: bool
    """Also destroyed ones."""


def print_machines(environ: Mapping[str, str]) -> bool:
    """What `hawker machine list` prints without options. False, with nothing printed, when it cannot: then the whole
    command says why, or finds a way."""
    app = environ.get("HAWKER_APP") or None
    selection = MachineSelection(app=app, states=(), region=None, metadata=(), everything=False)
    try:
        machines = read_machines(find_node(Access(), environ), selection)
    except (HawkerError, click.UsageError):
        return False
    if machines is None:
        return False
    write(listing(machines, datetime.fromtimestamp(SystemClock().now(), UTC)))
    return True


def read_machines(target: Target, selection: MachineSelection) -> list[Listed] | None:
    """The machines in the order of their apps. None when one answer was not as usual, whatever the reason: a client of
    the whole API then asks again, and says what is wrong."""
    answers = _Answers(target)
    try:
        names = [selection.app] if selection.app is not None else _app_names(answers)
        query = query_of(selection)
        return [Listed(name, each) for name in names for each in answers.read(_path(name) + query, list[ShownMachine])]
    except _NotAsUsual:
        return None


def query_of(selection: MachineSelection) -> str:
    """As `ListMachinesQuery` is written, for a summary."""
    pairs = [("include_deleted", "true")] if selection.everything else []
    if selection.region is not None:
        pairs.append(("region", selection.region))
    pairs += [("state", state.value) for state in selection.states]
    pairs.append(("summary", "true"))
    pairs += [(f"metadata.{key}", value) for key, value in dict(selection.metadata).items()]
    return "?" + "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in pairs)


class _NotAsUsual(Exception):
    """No answer, a refusal, or a body of another form."""


class _Answers:
    """What the node says to one GET after the other."""

    def __init__(self, target: Target) -> None:
        self._origin = origin_of(target.url)
        self._base = target.url.rstrip("/")[len(self._origin.prefix) :] if self._origin is not None else ""
        self._headers = {} if target.token is None else {"authorization": f"Bearer {target.token.reveal()}"}

    def read(self, path: str, kind: type[T]) -> T:
        if self._origin is None or self._origin.tls:
            raise _NotAsUsual
        response = get(self._origin, self._base + path, self._headers, _PATIENCE_S)
        if response is None or response.status != 200 or _MISSING in response.headers:
            raise _NotAsUsual
        try:
            return msgspec.json.decode(response.body, type=kind)
        except msgspec.DecodeError as error:
            raise _NotAsUsual from error


class _AppName(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class _AppPage(msgspec.Struct, frozen=True, kw_only=True):
    apps: tuple[_AppName, ...]
    next_cursor: str | None = None


def _app_names(answers: _Answers) -> Iterator[str]:
    query = f"?limit={_PAGE}"
    while True:
        page = answers.read(f"/v1/apps{query}", _AppPage)
        yield from (app.name for app in page.apps)
        if page.next_cursor is None:
            return
        query = f"?limit={_PAGE}&cursor={quote(page.next_cursor, safe='')}"


def _path(app: str) -> str:
    return f"/v1/apps/{quote(app, safe='')}/machines"


# As text.


class NamedImage(Protocol):
    """What names an image: its parts."""

    @property
    def registry(self) -> str: ...
    @property
    def repository(self) -> str: ...
    @property
    def tag(self) -> str: ...
    @property
    def digest(self) -> str: ...


def listing(machines: Sequence[Listed], now: datetime, *, wide: bool = False) -> str:
    """Hosts are shown where one is away, regions where there are several, and both with addresses and whole image names
    when it may be wide."""
    regions = wide or len({each.machine.region for each in machines}) > 1
    hosts = wide or any(each.machine.host_status != _OK for each in machines)
    headings = (
        "ID",
        "NAME",
        "APP",
        "STATE",
        *(("HOST",) * hosts),
        *(("REGION",) * regions),
        "IMAGE",
        *(("ADDRESS",) * wide),
        "AGE",
    )
    rows = (_row(each.app, each.machine, now, regions=regions, wide=wide, hosts=hosts) for each in machines)
    return table(headings, rows)


def _row(
    app: str, machine: ShownMachine, now: datetime, *, regions: bool, wide: bool, hosts: bool
) -> tuple[object, ...]:
    return (
        machine.id,
        machine.name,
        app,
        machine.state,
        *((machine.host if machine.host_status == _OK else f"{machine.host} away",) * hosts),
        *((machine.region,) * regions),
        image_name(machine.image_ref) if wide else _short(image_name(machine.image_ref)),
        *((machine.private_ip,) * wide),
        age(machine.created_at, now),
    )


def _short(image: str) -> str:
    """The end of a long name, which tells images apart."""
    return image if len(image) <= _IMAGE_WIDTH else f"…{image[1 - _IMAGE_WIDTH :]}"


def image_name(image: NamedImage) -> str:
    """As short as it can be said: the tag, or what there is of a digest."""
    name = f"{image.registry}/{image.repository}" if image.registry else image.repository
    return f"{name}:{image.tag}" if image.tag else f"{name}@{image.digest[:19]}"

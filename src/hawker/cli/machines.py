"""Finding machines: by id, by the unique beginning of one, or by name, in one app or in all."""

from collections.abc import Iterable
from contextlib import suppress

import click
import msgspec
from click.shell_completion import CompletionItem

from hawker.api.call_metadata import CallMetadata
from hawker.api.caller import Caller
from hawker.api.contract.app import LIST_APPS, AppParams, ListAppsQuery
from hawker.api.contract.machine import GET_MACHINE, LIST_MACHINES, ListMachinesQuery, Machine, MachineParams
from hawker.cli.connect import talk
from hawker.cli.listing import Listed, MachineSelection, ShownMachine
from hawker.cli.output import note
from hawker.errors import BadRequest, HawkerError, NotFound
from hawker.machine import GONE
from hawker.value_object import ValueObject

_PAGE = 500


class Owned(ValueObject, frozen=True):
    """A machine and the app that it belongs to."""

    app: str
    """Its name."""
    machine: Machine

    @property
    def params(self) -> MachineParams:
        return MachineParams(app_name=self.app, machine_id=self.machine.id)


class Away:
    """Hosts that did not answer, and their regions, gathered over the calls behind one list."""

    def __init__(self) -> None:
        self._regions: set[str] = set()
        self._nodes: set[str] = set()

    def add(self, metadata: CallMetadata) -> None:
        self._regions.update(metadata.missing_regions)
        self._nodes.update(metadata.missing_nodes)

    def tell(self) -> None:
        """Says that the list lacks something, or shows what a host said last."""
        if self._nodes:
            nodes = ", ".join(sorted(self._nodes))
            note(
                f"note: no answer from {nodes}: what they have in this region is shown as last known (unreachable); see"
                " `hawker node list`"
            )
        for region in sorted(self._regions if not self._nodes else ()):
            note(
                f"note: a host in region {region!r} does not answer: what it has is not listed; see `hawker node list`"
            )


async def app_names(caller: Caller, away: Away | None = None) -> list[str]:
    names: list[str] = []
    cursor: str | None = None
    while True:
        metadata = CallMetadata()
        page = await caller.call(LIST_APPS, query=ListAppsQuery(limit=_PAGE, cursor=cursor), metadata=metadata)
        if away is not None:
            away.add(metadata)
        names += [app.name for app in page.apps]
        cursor = page.next_cursor
        if cursor is None:
            return names


async def list_machines(
    caller: Caller, app: str | None, query: ListMachinesQuery, away: Away | None = None
) -> list[Owned]:
    """Of one app, or of all when `app` is None."""
    away = away or Away()
    if app is not None:
        return await _machines_of(caller, app, query, away)
    found: list[Owned] = []
    for name in await app_names(caller, away):
        with suppress(NotFound):  # destroyed since its name was read
            found += await _machines_of(caller, name, query, away)
    return found


def select_machines(ctx: click.Context, selection: MachineSelection, *, summary: bool) -> list[Owned]:
    """Those of the node that the command line names."""
    query = ListMachinesQuery(
        state=selection.states,
        region=selection.region,
        metadata=dict(selection.metadata),
        include_deleted=selection.everything,
        summary=summary,
    )
    away = Away()
    found = talk(ctx, lambda caller: list_machines(caller, selection.app, query, away))
    away.tell()
    return found


def listed_machines(ctx: click.Context, selection: MachineSelection) -> list[Listed]:
    """The same, as a list shows them."""
    machines = select_machines(ctx, selection, summary=True)
    return [Listed(each.app, msgspec.convert(each.machine, ShownMachine, from_attributes=True)) for each in machines]


async def _machines_of(caller: Caller, app: str, query: ListMachinesQuery, away: Away) -> list[Owned]:
    metadata = CallMetadata()
    page = await caller.call(LIST_MACHINES, params=AppParams(app_name=app), query=query, metadata=metadata)
    away.add(metadata)
    return [Owned(app, machine) for machine in page.items]


async def find_machine(caller: Caller, reference: str, app: str | None) -> Owned:
    """Also a destroyed one, by its id. Raises `NotFound`, `BadRequest` when several fit, and `Unavailable` in an app
    that is named for one whose node is away: lists go without it."""
    everything = await list_machines(caller, app, ListMachinesQuery(summary=True, include_deleted=True))
    try:
        return chosen(everything, reference, app)
    except NotFound:
        if app is None or not reference.isalnum():
            raise
        params = MachineParams(app_name=app, machine_id=reference)
        with suppress(NotFound):
            return Owned(app, await caller.call(GET_MACHINE, params=params))
        raise


def chosen(machines: Iterable[Owned], reference: str, app: str | None) -> Owned:
    """The best kind of match that there is: the whole id, then a name, then the beginning of an id. Destroyed machines
    count only where nothing that lives fits."""
    machines = list(machines)
    for lives in (True, False):
        there = [owned for owned in machines if (owned.machine.state not in GONE) is lives]
        for matches in (
            [owned for owned in there if owned.machine.id == reference],
            [owned for owned in there if owned.machine.name == reference],
            [owned for owned in there if reference and owned.machine.id.startswith(reference)],
        ):
            if len(matches) > 1:
                raise BadRequest(f"{reference!r} matches {_names(matches)}: give more of the id, or the app")
            if matches:
                return matches[0]
    raise NotFound(f"machine {reference!r} not found in {f'app {app!r}' if app else 'any app'}")


def _names(matches: Iterable[Owned]) -> str:
    return ", ".join(f"{owned.machine.id} ({owned.app}/{owned.machine.name})" for owned in matches)


# What a shell offers where a machine is to be named. Asks the node, and offers nothing when that does not answer.


def complete_machine(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names and ids of those that live."""
    app = ctx.params.get("app")
    try:
        machines = talk(ctx, lambda caller: list_machines(caller, app, ListMachinesQuery(summary=True)))
    except HawkerError:
        return []
    return [item for owned in machines for item in _items(owned) if item.value.startswith(incomplete)]


def _items(owned: Owned) -> tuple[CompletionItem, CompletionItem]:
    about = f"{owned.app}, {owned.machine.state}"
    return CompletionItem(owned.machine.name, help=about), CompletionItem(owned.machine.id, help=about)

"""`hawker releases`: what an app was to run, newest first, and what differs between two of them."""

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.release import LIST_RELEASES, ListReleasesQuery, Release, ReleaseList
from hawker.cli.connect import talk
from hawker.cli.exits import Failure
from hawker.cli.options import check_before_subcommand, one_app_option
from hawker.cli.output import Form, local, output_option, show, table
from hawker.value_object import ValueObject

_ALL = 100
_HIDDEN = frozenset({"env", "secrets", "raw_value"})
"""Values below these are not shown: people put passwords there."""


class Difference(ValueObject, frozen=True):
    """At `path` of the file, such as `http_service.internal_port`. None: it is not there."""

    path: str
    before: str | None
    """As TOML has it."""
    after: str | None
    """As TOML has it."""


@click.group("releases", invoke_without_command=True)
@one_app_option
@click.option("-n", "--limit", type=click.IntRange(1, _ALL), default=25, show_default=True, help="How many.")
@output_option
@click.pass_context
def command(ctx: click.Context, app: str, limit: int, form: Form) -> None:
    """List an app's releases, newest first: what clients that deploy told the app to run."""
    if ctx.invoked_subcommand is not None:
        check_before_subcommand(ctx)
        return
    query = ListReleasesQuery(limit=limit)
    params = AppParams(app_name=app)
    show(talk(ctx, lambda caller: caller.call(LIST_RELEASES, params=params, query=query)), form, releases_table)


@command.command("diff")
@one_app_option
@click.argument("before", type=int, required=False)
@click.argument("after", type=int, required=False)
@output_option
@click.pass_context
def diff(ctx: click.Context, app: str, before: int | None, after: int | None, form: Form) -> None:
    """Show what differs between two releases.

    AFTER is the newest unless told, BEFORE the one before it. Values of the environment are not shown.

    \b
    Examples:
      hawker releases diff
      hawker releases diff 3 5
    """
    older, newer = talk(ctx, lambda caller: _two(caller, app, before, after))
    show(list(differences(older, newer)), form, lambda found: _text(older, newer, found))


def releases_table(found: ReleaseList) -> str:
    rows = [
        (f"v{each.version}", each.status, each.strategy, each.image, each.user, local(each.created_at))
        for each in found.releases
    ]
    return table(("VERSION", "STATUS", "STRATEGY", "IMAGE", "USER", "CREATED"), rows)


async def _two(caller: Caller, app: str, before: int | None, after: int | None) -> tuple[Release, Release]:
    params, query = AppParams(app_name=app), ListReleasesQuery(limit=_ALL)
    found = {each.version: each for each in (await caller.call(LIST_RELEASES, params=params, query=query)).releases}
    newer = after if after is not None else max(found, default=0)
    older = before if before is not None else max((each for each in found if each < newer), default=0)
    for version in (older, newer):
        if version not in found:
            kept = ", ".join(f"v{each}" for each in sorted(found)) or "none"
            raise Failure(f"app '{app}' has no release v{version} to compare; it has {kept}")
    return found[older], found[newer]


def differences(older: Release, newer: Release) -> Iterator[Difference]:
    """Of image and strategy, then of the file by its paths. Pure."""
    for name in ("image", "strategy"):
        before, after = getattr(older, name), getattr(newer, name)
        if before != after:
            yield Difference(name, before, after)
    before, after = dict(_leaves(older.definition or {})), dict(_leaves(newer.definition or {}))
    for path in sorted({*before, *after}, key=_name):
        if before.get(path) != after.get(path):
            yield Difference(_name(path), _shown(path, before.get(path)), _shown(path, after.get(path)))


_Path = tuple[str | int, ...]


def _leaves(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    match value:
        case dict() if value:
            for key, inner in value.items():
                yield from _leaves(inner, (*path, key))
        case list() if value:
            for number, inner in enumerate(value):
                yield from _leaves(inner, (*path, number))
        case _:
            yield path, value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _name(path: _Path) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).removeprefix(".")


def _shown(path: _Path, value: str | None) -> str | None:
    return "(not shown)" if value is not None and not _HIDDEN.isdisjoint(map(str, path)) else value


def _text(older: Release, newer: Release, found: list[Difference]) -> str:
    if not found:
        return f"v{older.version} and v{newer.version} are the same"
    headings = ("WHERE", f"V{older.version}", f"V{newer.version}")
    return table(headings, ((each.path, each.before, each.after) for each in found), prose=headings[1:])

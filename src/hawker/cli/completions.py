"""What a shell offers where an app, a volume, an image or a node is to be named. Asks the node, and offers nothing when
that does not answer. Imported when a shell asks."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

import click
from click.shell_completion import CompletionItem

from hawker.api.caller import Caller
from hawker.api.contract.cluster import LIST_NODES
from hawker.api.contract.image import LIST_IMAGES
from hawker.api.contract.volume import ListVolumesQuery
from hawker.cli.connect import talk
from hawker.cli.machines import app_names, complete_machine
from hawker.cli.output import familiar
from hawker.cli.volumes import list_volumes
from hawker.errors import HawkerError
from hawker.ids import is_machine_id

Offer: TypeAlias = Iterable[tuple[str, str]]
"""Values, each with a word on what it is."""


def apps(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def offered(caller: Caller) -> Offer:
        return [(name, "app") for name in await app_names(caller)]

    return _fitting(ctx, incomplete, offered)


def volumes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names and ids."""

    async def offered(caller: Caller) -> Offer:
        found = await list_volumes(caller, ctx.params.get("app"), ListVolumesQuery(summary=True))
        words = [(each, f"{each.app}, {each.volume.size_gb} GiB") for each in found]
        return [(value, word) for each, word in words for value in (each.volume.name, each.volume.id)]

    return _fitting(ctx, incomplete, offered)


def mounts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Volumes, for what goes on with a path in the machine."""
    return [CompletionItem(f"{each.value}:", help=each.help) for each in volumes(ctx, param, incomplete)]


def images(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Those that the node has."""

    async def offered(caller: Caller) -> Offer:
        found = (await caller.call(LIST_IMAGES)).images
        return [(familiar(reference), image.digest[:19]) for image in found for reference in image.references]

    return _fitting(ctx, incomplete, offered)


def regions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def offered(caller: Caller) -> Offer:
        return [(node.region, "region") for node in (await caller.call(LIST_NODES)).nodes]

    return _fitting(ctx, incomplete, offered)


def machines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names and ids."""
    return complete_machine(ctx, param, incomplete)


def machine_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For what knows machines by their whole ids alone."""
    return [each for each in machines(ctx, param, incomplete) if is_machine_id(each.value)]


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What a connection can be made to: machines and apps."""
    return [*machines(ctx, param, incomplete), *apps(ctx, param, incomplete)]


def nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def offered(caller: Caller) -> Offer:
        return [(node.id, f"{node.region}, {node.state}") for node in (await caller.call(LIST_NODES)).nodes]

    return _fitting(ctx, incomplete, offered)


def _fitting(
    ctx: click.Context, incomplete: str, offered: Callable[[Caller], Awaitable[Offer]]
) -> list[CompletionItem]:
    try:
        found = talk(ctx, offered)
    except (HawkerError, click.UsageError):
        return []
    unique = dict(sorted(found))
    return [CompletionItem(value, help=word) for value, word in unique.items() if value.startswith(incomplete)]

"""`hawker images`: what the node holds to run machines from."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import anyio
import click

from hawker.api.caller import Caller
from hawker.api.contract.body import instant
from hawker.api.contract.image import (
    IMPORT_IMAGE,
    LIST_IMAGES,
    PRUNE_IMAGES,
    ImageInfo,
    ImageList,
    ImportQuery,
    PruneAnswer,
    PruneRequest,
    PullRequest,
    PushRequest,
)
from hawker.app import DEFAULT_ORG
from hawker.cli.connect import talk
from hawker.cli.exits import Failure
from hawker.cli.notation import Written, seconds
from hawker.cli.options import completed
from hawker.cli.output import Form, age, familiar, output_option, show, size, table
from hawker.cli.progress import pull, push, upload_display
from hawker.cli.token_input import password_options, read_password
from hawker.cli.uploads import chunks
from hawker.clock import SystemClock
from hawker.errors import NotFound
from hawker.value_object import ValueObject

_STDIN = Path("-")
_SHOWN = 19  # of a digest: "sha256:" and twelve
_ALGORITHM = "sha256:"
_LEAST = 6  # characters of a digest that may stand for it

_PULL_HELP = """Pull an image to the node, and print its digest.

\b
Examples:
  hawker images pull registry.local:5000/web:3
  hawker images pull reg.example/web:3 --username ada --password-stdin < file
"""


_PUSH_HELP = """Push an image of the node to a registry.

As NAME, or as what it is called. Prints its digest.

\b
Examples:
  hawker registry login registry.example --username ada
  hawker images push local/web:3 registry.example/team/web:3
"""

_IMPORT_HELP = """Upload an image archive to the node.

Prints the image's digest. FILE is what docker save or podman save write, or an OCI archive, compressed or not; - is
standard input. The other nodes of a fleet take the image from this one when they need it.

\b
Examples:
  hawker images import web.tar --as local/web:3
  podman save web:3 | hawker images import - --as local/web:3
"""


@click.group("images", no_args_is_help=True)
def command() -> None:
    """List, pull, import, push and remove the node's images."""


@command.command("list")
@output_option
@click.pass_context
def list_images(ctx: click.Context, form: Form) -> None:
    """List images."""
    show(talk(ctx, lambda caller: caller.call(LIST_IMAGES)), form, images_table)


def images_table(answer: ImageList) -> str:
    now = instant(SystemClock().now())
    rows = (
        (
            ", ".join(map(familiar, image.references)),
            image.digest[:_SHOWN],
            size(image.size_bytes),
            image.layers,
            image.machines,
            age(image.pulled_at, now),
        )
        for image in answer.images
    )
    return table(("IMAGE", "DIGEST", "SIZE", "LAYERS", "MACHINES", "AGE"), rows)


@command.command("pull", help=_PULL_HELP)
@click.argument("reference", metavar="IMAGE", shell_complete=completed("images"))
@click.option("--username", metavar="NAME", help="For a registry that asks who you are. The login is kept.")
@password_options
@click.option("--org", default=DEFAULT_ORG, show_default=True, help="Whose login at the registry is used.")
@output_option
@click.pass_context
def pull_image(
    ctx: click.Context,
    reference: str,
    username: str | None,
    password_stdin: bool,
    password_file: Path | None,
    org: str,
    form: Form,
) -> None:
    if username is None and (password_stdin or password_file):
        raise click.UsageError("give --username NAME with the password")
    password = read_password(password_stdin, password_file) if username is not None else None
    order = PullRequest(reference=reference, username=username, password=password, org=org)
    show(talk(ctx, lambda caller: pull(caller, order)), form, lambda event: event.digest or "")


@command.command("push", help=_PUSH_HELP)
@click.argument("reference", metavar="IMAGE", shell_complete=completed("images"))
@click.argument("target", metavar="[NAME]", required=False)
@click.option("--org", default=DEFAULT_ORG, show_default=True, help="Whose login at the registry is used.")
@output_option
@click.pass_context
def push_image(ctx: click.Context, reference: str, target: str | None, org: str, form: Form) -> None:
    order = PushRequest(reference=reference, to=target, org=org)
    show(talk(ctx, lambda caller: push(caller, order)), form, lambda event: event.digest or "")


@command.command("import", help=_IMPORT_HELP)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--as", "reference", metavar="NAME", help="The name of the image.")
@click.option("--format", "kind", type=click.Choice(["auto", "oci-archive", "docker-archive"]), default="auto",
              help="What FILE is; auto: found out.  [default: auto]")  # fmt: skip
@click.option("--org", metavar="NAME", help="The one organization that may use it.  [default: all may]")
@output_option
@click.pass_context
def import_image(
    ctx: click.Context,
    file: Path,
    reference: str | None,
    kind: Literal["auto", "oci-archive", "docker-archive"],
    org: str | None,
    form: Form,
) -> None:
    if file == _STDIN:
        _refuse_nothing()
    query = ImportQuery(reference=reference, format=kind, org=org)
    show(talk(ctx, lambda caller: _import(caller, file, query)), form, lambda image: image.digest)


def _refuse_nothing() -> None:
    """Raises `UsageError` for a terminal, and `Failure` for an input that ends before its first byte: whoever was to
    write the archive failed."""
    if sys.stdin.isatty():
        raise click.UsageError("standard input is a terminal: pipe an archive in, or name a file")
    if not sys.stdin.buffer.peek(1):  # type: ignore[union-attr]
        raise Failure("standard input is empty: the command before the pipe wrote no archive")


async def _import(caller: Caller, file: Path, query: ImportQuery) -> ImageInfo:
    if file == _STDIN:
        with upload_display("standard input", None) as sent:
            return await caller.upload(IMPORT_IMAGE, chunks(anyio.wrap_file(sys.stdin.buffer), sent), query=query)
    total_bytes = (await anyio.Path(file).stat()).st_size
    with upload_display(file.name, total_bytes) as sent:
        async with await anyio.open_file(file, "rb") as opened:
            return await caller.upload(IMPORT_IMAGE, chunks(opened, sent), query=query)


@command.command("remove")
@click.argument("references", metavar="IMAGE...", nargs=-1, required=True, shell_complete=completed("images"))
@output_option
@click.pass_context
def remove_images(ctx: click.Context, references: tuple[str, ...], form: Form) -> None:
    """Remove images from the node, with all their names.

    IMAGE is a name, a digest or the beginning of one. An image that a machine uses stays.
    """

    async def remove(caller: Caller) -> _Pruned:
        images = (await caller.call(LIST_IMAGES)).images
        wanted = tuple(dict.fromkeys(_named(images, each).digest for each in references))
        answer = await caller.call(PRUNE_IMAGES, body=PruneRequest(digests=wanted))
        return _Pruned(answer, images)

    _show_pruned(talk(ctx, remove), form)


def _named(images: Sequence[ImageInfo], reference: str) -> ImageInfo:
    """Raises `NotFound` and `Failure`."""
    spellings, digits = {reference, f"{reference}:latest"}, reference.removeprefix(_ALGORITHM)
    found = [
        image
        for image in images
        if spellings & {*image.references, *map(familiar, image.references)}
        or (len(digits) >= _LEAST and image.digest.removeprefix(_ALGORITHM).startswith(digits))
    ]
    match found:
        case []:
            raise NotFound(f"image {reference!r} is not on this node: see `hawker images list`")
        case [image] if image.machines:
            users = f"{image.machines} machine{'s' * (image.machines != 1)}"
            raise Failure(f"image {reference} is used by {users}: destroy or update what uses it first")
        case [image]:
            return image
    raise Failure(f"{reference!r} is the beginning of {len(found)} digests: give more of it")


@command.command("prune")
@click.option("--unused-for", type=Written(seconds, "duration"), metavar="TIME",
              help="Only images unused for this time.")  # fmt: skip
@output_option
@click.pass_context
def prune_images(ctx: click.Context, unused_for: float | None, form: Form) -> None:
    """Remove images that no machine uses, and print what was removed.

    Imported images go, too, and cannot be pulled again: `hawker images push` them to a registry before, or `remove`
    single images instead.
    """
    request = PruneRequest(unused_for_s=unused_for)

    async def prune(caller: Caller) -> _Pruned:
        images = (await caller.call(LIST_IMAGES)).images
        return _Pruned(await caller.call(PRUNE_IMAGES, body=request), images)

    _show_pruned(talk(ctx, prune), form)


class _Pruned(ValueObject, frozen=True):
    """What went, and the images that there were before."""

    answer: PruneAnswer
    before: tuple[ImageInfo, ...]


def _show_pruned(pruned: _Pruned, form: Form) -> None:
    names = {image.digest: ", ".join(map(familiar, image.references)) for image in pruned.before}
    show(pruned.answer, form, lambda answer: pruned_text(answer, names))


def pruned_text(answer: PruneAnswer, names: Mapping[str, str]) -> str:
    """One digest a line, with the names that it had."""
    gone = (f"{digest}  {names.get(digest, '')}".rstrip() for digest in answer.removed)
    return "\n".join([*gone, f"freed {size(answer.freed_bytes)}"])

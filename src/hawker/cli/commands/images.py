"""`hawker images`: what the node holds to run machines from."""

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import anyio
import click

from hawker.api.caller import Caller
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
)
from hawker.cli.connect import talk
from hawker.cli.notation import Written, seconds
from hawker.cli.output import Form, local, output_option, show, size, table
from hawker.cli.progress import pull, upload_display

_CHUNK_BYTES = 256 * 1024
_SHOWN = 19  # of a digest: "sha256:" and twelve

_PULL_HELP = """Pull an image to the node, and print its digest.

\b
Examples:
  hawker images pull registry.local:5000/web:3
  hawker images pull registry.example/team/web:3 --username ada --password-stdin < password
"""


@click.group("images", no_args_is_help=True)
def command() -> None:
    """List, pull, import and prune the node's images."""


@command.command("list")
@output_option
@click.pass_context
def list_images(ctx: click.Context, form: Form) -> None:
    """List images."""
    show(talk(ctx, lambda caller: caller.call(LIST_IMAGES)), form, images_table)


def images_table(answer: ImageList) -> str:
    rows = (
        (
            ", ".join(image.references),
            image.digest[:_SHOWN],
            size(image.size_bytes),
            image.layers,
            image.machines,
            local(image.pulled_at),
        )
        for image in answer.images
    )
    return table(("IMAGE", "DIGEST", "SIZE", "LAYERS", "MACHINES", "PULLED"), rows)


@command.command("pull", help=_PULL_HELP)
@click.argument("reference", metavar="IMAGE")
@click.option("--username", metavar="NAME", help="For a registry that asks who you are.")
@click.option("--password-stdin", is_flag=True, help="Read the password from stdin.")
@output_option
@click.pass_context
def pull_image(ctx: click.Context, reference: str, username: str | None, password_stdin: bool, form: Form) -> None:
    password = sys.stdin.read().rstrip("\n") if password_stdin else None
    order = PullRequest(reference=reference, username=username, password=password)
    show(talk(ctx, lambda caller: pull(caller, order)), form, lambda event: event.digest or "")


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--as", "reference", metavar="NAME", help="The name of the image.")
@click.option("--format", "kind", type=click.Choice(["auto", "oci-archive", "docker-archive"]), default="auto")
@output_option
@click.pass_context
def import_image(
    ctx: click.Context,
    file: Path,
    reference: str | None,
    kind: Literal["auto", "oci-archive", "docker-archive"],
    form: Form,
) -> None:
    """Upload an image archive from here to the node, and print the image's digest."""
    query = ImportQuery(reference=reference, format=kind)
    show(talk(ctx, lambda caller: _import(caller, file, query)), form, lambda image: image.digest)


async def _import(caller: Caller, file: Path, query: ImportQuery) -> ImageInfo:
    total_bytes = (await anyio.Path(file).stat()).st_size
    with upload_display(file.name, total_bytes) as sent:
        return await caller.upload(IMPORT_IMAGE, _contents(file, sent), query=query)


async def _contents(file: Path, sent: Callable[[int], None]) -> AsyncIterator[bytes]:
    async with await anyio.open_file(file, "rb") as opened:
        while chunk := await opened.read(_CHUNK_BYTES):
            yield chunk
            sent(len(chunk))


@command.command("prune")
@click.option("--unused-for", type=Written(seconds, "duration"), metavar="TIME",
              help="Only images unused for this time.")  # fmt: skip
@output_option
@click.pass_context
def prune_images(ctx: click.Context, unused_for: float | None, form: Form) -> None:
    """Remove images that no machine uses, and print what was removed."""
    request = PruneRequest(unused_for_s=unused_for)
    show(talk(ctx, lambda caller: caller.call(PRUNE_IMAGES, body=request)), form, pruned)


def pruned(answer: PruneAnswer) -> str:
    return "\n".join([*answer.removed, f"freed {size(answer.freed_bytes)}"])

"""`hawker machine cp`: files and directories into a machine, or out of it. Nothing in the image is needed for it."""

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

import anyio
import click
from click.shell_completion import CompletionItem

from hawker.api.caller import Caller
from hawker.api.contract.body import Failed
from hawker.api.contract.exec import (
    MACHINE_COPY,
    CopyRequest,
    Exited,
    Input,
    InputEnd,
    Output,
    TerminalInput,
    TerminalOutput,
)
from hawker.api.failure import error_of
from hawker.api.handlers import SocketChannel
from hawker.cli.connect import talk
from hawker.cli.copy_stream import CopyTally, CopyUnpacker, CutShort, pack
from hawker.cli.exits import Failure
from hawker.cli.machines import complete_machine, find_machine
from hawker.cli.options import app_option
from hawker.cli.output import Form, note, output_option, show_change, size
from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.value_object import ValueObject

_HELP = """Copy a file or a directory into a running machine, or out of it. One of SOURCE and DESTINATION is
MACHINE:PATH, the other a path here.

\b
Examples:
  hawker cp site web:/srv               becomes /srv/site if /srv is there
  hawker cp site/. web:/srv             what is in it, straight into /srv
  hawker cp web:/var/log/app.log .
  hawker cp --archive web:/etc backup   owners too: as root

A directory that is there keeps what it has; files of the same names are replaced, each when it is complete. Modes,
times, symbolic links and holes are kept. Without --archive files get the receiver's owner: root in a machine, you here,
and bits such as set-user-id are dropped here. Pipes, sockets and devices are passed over; hard links become files.
"""
_PART = 96 * 1024
_TELL_EVERY_S = 0.2
_WORDS_MAX = 4096

Channel = SocketChannel[TerminalInput, TerminalOutput]


class Inside(ValueObject, frozen=True):
    """A path in a machine."""

    machine: str
    """Its name or id, as it was typed."""
    path: str
    """As it was typed; `/` where nothing was."""


def inside(text: str) -> Inside | None:
    """MACHINE:PATH; None for a path of this host, which may have a colon too where it begins with / or a dot."""
    machine, sign, path = text.partition(":")
    if not sign or not machine or text.startswith(("/", ".", "~")) or "/" in machine:
        return None
    return Inside(machine, path or "/")


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    machines = [CompletionItem(f"{each.value}:", help=each.help) for each in complete_machine(ctx, param, incomplete)]
    return [*machines, CompletionItem(incomplete, type="file")]


@click.command("cp", help=_HELP)
@click.argument("source", metavar="SOURCE", shell_complete=_complete)
@click.argument("destination", metavar="DESTINATION", shell_complete=_complete)
@app_option
@click.option("-c", "--container", metavar="NAME", help="The container; default the first one.")
@click.option("--archive", "owners", is_flag=True, help="Keep owners, by their numbers.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing when all went well.")
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    destination: str,
    app: str | None,
    container: str | None,
    owners: bool,
    quiet: bool,
    form: Form,
) -> None:
    _refuse_dash(source, destination)
    there, here = inside(source), inside(destination)
    if (there is None) == (here is None):
        raise click.UsageError("one of SOURCE and DESTINATION must be MACHINE:PATH, and only one")
    tally = CopyTally(tell=None if quiet or not sys.stderr.isatty() else _progress())
    if here is not None:
        into = _Into(source, here, app, container, owners)
        talk(ctx, lambda caller: into.copy(caller, tally))
    elif there is not None:
        out = _OutOf(there, Path(destination), app, container, owners)
        talk(ctx, lambda caller: out.copy(caller, tally))
    for each in tally.passed_over:
        note(f"passed over {each}")
    passed_over = list(tally.passed_over)
    show_change(form, None, files=tally.files, bytes=tally.data, passed_over=passed_over)
    if not quiet:
        files = "1 file" if tally.files == 1 else f"{tally.files} files"
        note(f"{_CLEAR if tally.tell else ''}copied {files}, {size(tally.data)}")


def _refuse_dash(source: str, destination: str) -> None:
    """To other commands it is standard input or output, not a file of that name. Raises `UsageError`."""
    if "-" not in (source, destination):
        return
    other = inside(source) or inside(destination)
    machine, path = (other.machine, shlex.quote(other.path)) if other is not None else ("MACHINE", "PATH")
    if destination == "-":
        way = f"`hawker exec {machine} cat {path}` prints a file, `hawker exec {machine} tar c {path}` a directory"
    else:
        way = f"`hawker exec {machine} tee {path}` writes its standard input to a file"
    raise click.UsageError(f"- is no standard input or output here: {way}; a file of that name is ./-")


_CLEAR = "\r\x1b[K"


def _progress() -> Callable[[CopyTally], None]:
    clock = SystemClock()
    told_at = clock.monotonic()

    def tell(tally: CopyTally) -> None:
        nonlocal told_at
        if clock.monotonic() - told_at >= _TELL_EVERY_S:
            told_at = clock.monotonic()
            click.echo(f"{_CLEAR}{tally.files} files, {size(tally.data)}", err=True, nl=False)

    return tell


class _Into(ValueObject, frozen=True):
    source: str
    """As it was typed."""
    destination: Inside
    app: str | None
    container: str | None
    owners: bool

    async def copy(self, caller: Caller, tally: CopyTally) -> None:
        found = await find_machine(caller, self.destination.machine, self.app)
        path = _there(self.source)
        request = CopyRequest(
            path=self.destination.path,
            direction="in",
            name="" if _means_contents(self.source) else path.name,
            owners=self.owners,
            container=self.container,
        )
        words = bytearray()
        async with (
            caller.socket(MACHINE_COPY, request, params=found.params) as channel,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_send, channel, path, tally)
            exited = await _receive(channel, lambda message: _keep_words(words, message))
            tasks.cancel_scope.cancel()
        _refuse(exited, words)


def _means_contents(typed: str) -> bool:
    """Whether what is in the directory goes into another one, in place of itself under its name. A `Path` does not
    say: it drops the dot."""
    return typed == "." or typed.endswith("/.")


def _there(typed: str) -> Path:
    """What is there, under a name. Raises `Failure`."""
    source = Path(typed)
    if not os.path.lexists(source):
        raise Failure(f"{source}: no such file or directory")
    if _means_contents(typed) and not source.is_dir():
        raise Failure(f"{typed}: not a directory")
    return source.resolve() if source.name in ("", "..") or _means_contents(typed) else source


async def _send(channel: Channel, path: Path, tally: CopyTally) -> None:
    """What comes too late for a machine that has refused is lost; its answer says why."""
    part = bytearray()
    try:
        for piece in pack(path, tally):
            part += piece
            if len(part) >= _PART:
                await channel.send(Input(data=bytes(part)))
                part.clear()
        await channel.send(Input(data=bytes(part)))
        await channel.send(InputEnd())
    except Unavailable:
        return
    except OSError as error:
        raise Failure(f"{error.filename or path}: {(error.strerror or 'cannot be read').lower()}") from error


class _OutOf(ValueObject, frozen=True):
    source: Inside
    destination: Path
    app: str | None
    container: str | None
    owners: bool

    async def copy(self, caller: Caller, tally: CopyTally) -> None:
        found = await find_machine(caller, self.source.machine, self.app)
        request = CopyRequest(path=self.source.path, direction="out", container=self.container)
        name = PurePosixPath(self.source.path).name
        nameless = name == ".." or _means_contents(self.source.path)
        unpacker = CopyUnpacker(self.destination, "" if nameless else name, tally, owners=self.owners)
        words = bytearray()

        def take(message: Output) -> None:
            if message.stream == 1:
                unpacker.feed(message.data)
            else:
                _keep_words(words, message)

        with ExitStack() as stack:
            stack.callback(unpacker.close)
            async with caller.socket(MACHINE_COPY, request, params=found.params) as channel:
                try:
                    exited = await _receive(channel, take)
                except OSError as error:
                    where = error.filename or self.destination
                    raise Failure(f"{_printable(where)}: {(error.strerror or str(error)).lower()}") from error
            _refuse(exited, words)
            if not unpacker.complete:
                raise CutShort("the copy was cut short")


async def _receive(channel: Channel, take: Callable[[Output], None]) -> Exited:
    while (message := await channel.receive()) is not None:
        match message:
            case Output():
                take(message)
            case Exited():
                return message
            case Failed():
                raise error_of(message.http_status, message.problem)
    raise Unavailable("the connection to the node was lost before all was copied")


def _keep_words(words: bytearray, message: Output) -> None:
    """What a machine says went wrong; so much of it."""
    words += message.data[: max(0, _WORDS_MAX - len(words))]


def _refuse(exited: Exited, words: bytearray) -> None:
    if exited.reason or exited.exit_code:
        said = _printable(words.decode(errors="replace").strip()) or exited.reason or "the copy was ended there"
        raise Failure(f"in the machine: {said}")


def _printable(text: object) -> str:
    plain = os.fsdecode(text) if isinstance(text, bytes) else str(text)
    return "".join(each if each.isprintable() else "�" for each in plain)

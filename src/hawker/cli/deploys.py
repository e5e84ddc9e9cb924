"""A deploy as a person follows it: a line for each machine that moves, what is waited for, the sum. On a terminal what
is under way is shown in place; elsewhere each change is a line. Following ends with the deploy, or with Ctrl-C, which
leaves the deploy running.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import (
    CREATE_DEPLOY,
    GET_DEPLOY,
    CreateDeployRequest,
    DeployInfo,
    DeployParams,
    DeploySlot,
    GetDeployQuery,
)
from hawker.api.failure import ConnectionLost
from hawker.cli.connect import talk
from hawker.cli.exits import ExitStatus
from hawker.cli.output import Form, fields, line_of_json, local, note, table
from hawker.clock import Clock, SystemClock
from hawker.errors import DeadlineExceeded, Unavailable, plain

_WAIT_S = 20.0
_AGAIN_S = 1.0
_MOST_ACTIVE = 12
"""Machines that are shown at once as under way."""
_DONE = {"update": "updated", "create": "created", "destroy": "destroyed", "canary": "proven and destroyed"}
_DOING = {"update": "updating", "create": "creating", "destroy": "destroying", "canary": "canary"}
_ENDED = {"done", "skipped", "failed", "returned", "left"}
_COLOURS = {"done": "green", "failed": "red", "left": "red", "skipped": "yellow", "returned": "yellow"}


def word_of(slot: DeploySlot) -> str:
    """What happens to its machine, or has."""
    match slot.state:
        case "done":
            return _DONE[slot.kind]
        case "changing":
            return _DOING[slot.kind]
        case "proving":
            return "proving itself"
        case "returning":
            return "being taken back"
        case "returned":
            return "taken back"
        case "left":
            return "not taken back"
    return slot.state


def slot_line(slot: DeploySlot) -> str:
    """`web  d8d97d4b  iad  updating  waits: ...`."""
    where = slot.machine_id or "new machine"
    text = f": {slot.text}" if slot.text else ""
    return f"{slot.group}  {where}  {slot.region or '-'}  {word_of(slot)}{text}"


def sum_of(deploy: DeployInfo) -> str:
    """`3/12 of release 7, 1 under way, about 40 s left: what it does now`."""
    counts = Counter(slot.state for slot in deploy.slots)
    ended = counts["done"] + counts["skipped"]
    under_way = counts["changing"] + counts["proving"] + counts["returning"]
    parts = [f"{ended}/{len(deploy.slots)} of release {deploy.version}", f"{under_way} under way"]
    for state, word in (("skipped", "away"), ("failed", "failed"), ("returned", "taken back"), ("left", "left over")):
        if counts[state]:
            parts.append(f"{counts[state]} {word}")
    left_s = left_of(deploy)
    if left_s is not None:
        parts.append(f"about {left_s:.0f} s left")
    stage = f": {deploy.stage}" if deploy.stage else ""
    paused = ", paused" if deploy.status == "paused" else ""
    return ", ".join(parts) + paused + stage


def left_of(deploy: DeployInfo) -> float | None:
    """Seconds, by how fast it was until now; None while that says nothing."""
    ended = [slot.at for slot in deploy.slots if slot.state in ("done", "skipped")]
    left = sum(slot.state in ("waiting", "changing", "proving") for slot in deploy.slots)
    if deploy.status != "running" or len(ended) < 2 or not left:
        return None
    return (max(ended) - deploy.began_at).total_seconds() / len(ended) * left


class Progress:
    """Told of every state that was seen, in order. `live` is None where there is no terminal."""

    def __init__(self, say: Callable[[str], None], live: Live | None = None) -> None:
        self._say = say
        self._live = live
        self._seen: dict[int, tuple[str, str]] = {}
        self._stage = ""

    def show(self, deploy: DeployInfo) -> None:
        for slot in deploy.slots:
            now = slot.state, slot.text
            before = self._seen.get(slot.number, ("waiting", ""))
            self._seen[slot.number] = now
            if now != before and (slot.state in _ENDED or self._live is None) and slot.state != "waiting":
                self._say(click.style(slot_line(slot), fg=_COLOURS.get(slot.state)))
        if self._live is not None:
            self._live.update(Group(*self._lines(deploy)))
        elif deploy.stage and deploy.stage != self._stage:
            self._say(sum_of(deploy))
        self._stage = deploy.stage

    def _lines(self, deploy: DeployInfo) -> Iterator[Text]:
        active = [slot for slot in deploy.slots if slot.state in ("changing", "proving", "returning")]
        for slot in active[:_MOST_ACTIVE]:
            yield Text(f"  {slot_line(slot)}", overflow="ellipsis", no_wrap=True)
        if len(active) > _MOST_ACTIVE:
            yield Text(f"  and {len(active) - _MOST_ACTIVE} more")
        yield Text(sum_of(deploy), style="bold", overflow="ellipsis", no_wrap=True)


class JsonProgress:
    """A line of JSON for each state that was seen."""

    def show(self, deploy: DeployInfo) -> None:
        click.echo(line_of_json(deploy))


class _Live(Live):
    """Leaves nothing of what was under way when it ends."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.update(Text(""))
        super().__exit__(kind, error, trace)


@contextmanager
def progress(form: Form) -> Iterator[Progress | JsonProgress]:
    console = Console(file=sys.stderr)
    if form is Form.JSON:
        yield JsonProgress()
    elif console.is_terminal:
        with _Live(console=console, transient=True, refresh_per_second=8) as live:
            yield Progress(lambda text: live.console.print(Text.from_ansi(text)), live)
    else:
        yield Progress(note)


async def followed(caller: Caller, deploy: DeployInfo, shown: Progress | JsonProgress, clock: Clock) -> DeployInfo:
    """The deploy once it has ended. A node that is away for a while is asked again, since the deploy goes on there."""
    shown.show(deploy)
    params, said = DeployParams(app_name=deploy.app_name, version=str(deploy.version)), False
    while deploy.ended_at is None:
        query = GetDeployQuery(after=deploy.serial, wait=_WAIT_S)
        try:
            found = await caller.call(GET_DEPLOY, params=params, query=query)
        except (Unavailable, DeadlineExceeded, ConnectionLost) as error:
            if not said:
                note(f"waiting for the node: {error}")
            said = True
            await clock.sleep(_AGAIN_S)
            continue
        said = False
        if found.serial != deploy.serial:
            shown.show(found)
        deploy = found
    return deploy


def follow(ctx: click.Context, deploy: DeployInfo, form: Form) -> int:
    """Until the deploy has ended; the exit status. Ctrl-C leaves it running."""
    try:
        with progress(form) as shown:
            ended = talk(ctx, lambda caller: followed(caller, deploy, shown, SystemClock()))
    except KeyboardInterrupt:
        app = deploy.app_name
        note(f"the deploy goes on: `hawker deploy watch -a {app}` follows it, `hawker deploy abort -a {app}` ends it")
        return ExitStatus.INTERRUPTED
    return outcome(ended, form)


def outcome(deploy: DeployInfo, form: Form) -> int:
    if form is not Form.JSON:
        said = f": {deploy.error}" if deploy.error else ""
        colour = "green" if deploy.status == "complete" else "red"
        note(click.style(f"release {deploy.version} of {deploy.app_name}: {deploy.status}{said}", fg=colour))
    return ExitStatus.OK if deploy.status == "complete" else ExitStatus.FAILED


def begin(ctx: click.Context, app: str, body: CreateDeployRequest, form: Form, *, detach: bool) -> int:
    """Hand a deploy over, then follow it unless told to leave; the exit status."""
    # The node may have to ask a registry first.
    made = talk(ctx, lambda caller: caller.call(CREATE_DEPLOY, params=AppParams(app_name=app), body=body))
    for warning in made.warnings:
        note(f"warning: {warning}")
    if made.alone:
        note(f"{made.alone} machines of {app} are of no process group and stay as they are")
    if detach or body.dry_run:
        click.echo(line_of_json(made) if form is Form.JSON else described(made))
        return ExitStatus.OK
    if form is not Form.JSON:
        count = f"{len(made.slots)} machine{'s' * (len(made.slots) != 1)}"
        note(f"release {made.version} of {app}: {made.strategy}, {count}, {made.image}")
    return follow(ctx, made, form)


def described(deploy: DeployInfo) -> str:
    """A deploy with its machines."""
    head = fields(
        (
            ("release", f"v{deploy.version}"),
            ("status", deploy.status),
            ("strategy", deploy.strategy),
            ("image", deploy.image),
            ("by", deploy.user),
            ("label", deploy.label),
            ("began", local(deploy.began_at)),
            ("ended", None if deploy.ended_at is None else local(deploy.ended_at)),
            ("now", deploy.stage),
            ("error", plain(deploy.error)),
        )
    )
    rows = [
        (slot.group, slot.machine_id or "-", slot.region or "-", slot.kind, slot.state, plain(slot.text))
        for slot in deploy.slots
    ]
    return (
        f"{head}\n\n{table(('GROUP', 'MACHINE', 'REGION', 'KIND', 'STATE', 'TEXT'), rows, prose=('TEXT',))}"
        if rows
        else head
    )


def deploys_table(deploys: Iterable[DeployInfo]) -> str:
    rows: list[tuple[Any, ...]] = [
        (f"v{each.version}", each.status, each.strategy, each.image, each.user, local(each.began_at), plain(each.error))
        for each in deploys
    ]
    return table(("VERSION", "STATUS", "STRATEGY", "IMAGE", "USER", "BEGAN", "ERROR"), rows, prose=("ERROR",))

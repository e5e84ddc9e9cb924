"""Writes `docs/generated/` from the code: a page per flow, the errors, the metrics, the settings; and the page of
`hawker --help`. With `--check` it writes nothing and fails when a page is not what the code says."""

import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import msgspec

from hawker.chaos.hostile.planted import HOLES
from hawker.chaos.hostile.trial import SCENES
from hawker.cli.entry import HELP_COLUMNS, HELP_FILE
from hawker.cli.main import ROOT
from hawker.errors import HawkerError
from hawker.fair.table import ELSEWHERE, SHARES
from hawker.fsm.diagram import page
from hawker.observe.edge_page import EDGE_FAMILIES
from hawker.observe.metrics import build_metrics
from hawker.settings import LEAST, Settings
from hawker.up.commands.up import HELP
from hawker.up.wiring import NODE_FLOWS

GENERATED = Path(__file__).parents[1] / "docs" / "generated"
_JUDGED = "conformance.md"  # written by `make conformance`, and held to the code by tests/conformance/test_page.py
_NOTE = "Written by `make docs` from the code; do not edit."


def pages() -> dict[str, str]:
    """File names below `docs/generated/` and what is in them."""
    flows = {f"flows/{flow.name}.md": page(flow) for flow in NODE_FLOWS}
    tables = {
        "errors.md": errors(),
        "metrics.md": metrics(),
        "settings.md": settings(),
        "shares.md": shares(),
        "hostile.md": hostile(),
    }
    return {**flows, **{name: "\n".join(lines) + "\n" for name, lines in tables.items()}}


def errors() -> Iterator[str]:
    """The family as `errors.py` has it; what a room derives from it is that room's own."""
    yield from ("# Errors", "", _NOTE, "")
    yield from ("| Error | HTTP | `status` in the body | A retry can help | When |", "|---|---|---|---|---|")
    for error in (each for each in HawkerError.__subclasses__() if each.__module__ == HawkerError.__module__):
        when = " ".join((error.__dict__.get("__doc__") or "").split())
        yield f"| {error.__name__} | {error.status} | `{error.code}` | {'yes' if error.retry else 'no'} | {when} |"


def settings() -> Iterator[str]:
    yield from ("# Settings", "", _NOTE, "")
    yield "Each is a key of the TOML file and, in capitals after `HAWKER_`, a variable; flags: `hawker up --help`."
    yield from ("", "| Setting | Type | Default | Unit, range | Effect |", "|---|---|---|---|---|")
    for field in msgspec.structs.fields(Settings):
        kind = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        default = "" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`"
        kind = kind.replace("pathlib.", "").replace("|", "or")
        kind = re.sub(r"typing.Literal\[(.*)\]", lambda found: found[1].replace("', '", "' or '"), kind)
        yield f"| `{field.name}` | {kind} | {default} | {_range(field)} | {_effect(HELP, field.name)} |"


_UNITS = {
    "_mib_per_s": "MiB/s",
    "_operations_per_s": "operations/s",
    "_connections_per_s": "connections/s",
    "_packets_per_s": "packets/s",
    "_mib": "MiB",
    "_gb": "GiB",
    "_percent": "%",
    "_s": "s",
}
_NUMBERS = frozenset({int, float})


def _range(field: msgspec.structs.FieldInfo) -> str:
    """The unit of a number, by the end of its name, and its least value; nothing for what is no number."""
    kinds = set(typing.get_args(field.type)) or {field.type}
    if not kinds & _NUMBERS:
        return ""
    unit = next((unit for end, unit in _UNITS.items() if field.name.endswith(end)), "")
    return f"{unit}, at least {LEAST[field.name]:,}".removeprefix(", ")


def _effect(helps: Mapping[str, str], name: str) -> str:
    """What the option of `hawker up` says of a setting. Raises `ValueError` for a setting that no option explains."""
    said = " ".join(helps.get(name, "").split())
    if not said:
        raise ValueError(f"no option of `hawker up` says what the setting {name} does")
    return said.replace("|", r"\|").replace("<", "&lt;")


def metrics() -> Iterator[str]:
    yield from ("# Metrics", "", _NOTE, "")
    yield "Beside these, `process_*` has the daemon's cpu, memory, open files and start, named as everywhere."
    yield from ("", "| Metric | Type | Labels | What |", "|---|---|---|---|")
    for family in build_metrics("").families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.text} |"
    yield from (
        "",
        "What `GET /metrics/edge` has of the apps that were served lately ([metrics.md](../metrics.md)):",
        "",
    )
    yield from ("| Metric | Type | Labels | What |", "|---|---|---|---|")
    for family in EDGE_FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.text} |"


def shares() -> Iterator[str]:
    yield from ("# Shares", "", _NOTE, "")
    yield "What tenants share in a process, how much of it one of them may have at once, and what happens beyond it."
    yield "A reserve is for the node's own work and the operator's token; keys take turns."
    yield from ("", "| Shared | At once | Of one | Reserve | Key | Over it |", "|---|---|---|---|---|---|")
    for share in SHARES:
        yield f"| {share.name} | {share.total} | {share.each} | {share.reserve or ''} | {share.key} | {share.over} |"
    yield from ("", "Bounded elsewhere:", "", "| Shared | Bound | Key | Over it |", "|---|---|---|---|")
    for row in ELSEWHERE:
        yield f"| {row.name} | {row.bound} | {row.key} | {row.over} |"


def command_help() -> str:
    """What `hawker --help` prints."""
    context = click.Context(ROOT, info_name="hawker", **{**ROOT.context_settings, "terminal_width": HELP_COLUMNS - 2})
    return f"{ROOT.get_help(context)}\n"


def hostile() -> Iterator[str]:
    yield from ("# Attacks that are played", "", _NOTE, "")
    yield "`hawker chaos hostile` plays each of them on a real node or a real fleet. The promise is the same for all:"
    yield "the other tenant notices nothing, the node goes on with its duties, and nothing is left"
    yield "([chaos.md](../chaos.md#hostile-tenants))."
    yield from ("", "| Attack | By | On | What is done | Held by | Ground |", "|---|---|---|---|---|---|")
    for scene in SCENES:
        told = (scene.name, scene.by.value, scene.shared, scene.what, scene.held_by, scene.ground.value)
        yield f"| {' | '.join(told)} |"
    yield from ("", "Holes that can be planted, each with a scene that finds it:", "")
    yield from ("| Hole | What is missing | Found by |", "|---|---|---|")
    for hole in HOLES:
        yield f"| {hole.name} | {hole.what} | {hole.scene} |"


def stale(wanted: Mapping[str, str], folder: Path) -> list[str]:
    """Pages that are missing, differ, or that the code no longer writes."""
    there = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.md")}
    there.pop(_JUDGED, None)
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def write(wanted: Mapping[str, str], folder: Path) -> None:
    for name in stale(wanted, folder):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in wanted:
            path.write_text(wanted[name])
        else:
            path.unlink()


def main() -> int:
    old, command = stale(pages(), GENERATED), Path(HELP_FILE)
    if not command.exists() or command.read_text() != command_help():
        old.append(command.name)
    if "--check" not in sys.argv:
        write(pages(), GENERATED)
        command.write_text(command_help())
        print(f"docs: {len(old)} pages written" if old else "docs: up to date")
        return 0
    for name in old:
        print(f"{name} is not what the code says; run `make docs`", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    raise SystemExit(main())

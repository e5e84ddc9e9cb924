"""Writes `docs/generated/` from the code: a page per flow, the errors, the metrics, the settings. With `--check` it
writes nothing and fails when a page is not what the code says."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from hawker.errors import HawkerError
from hawker.fsm.diagram import page
from hawker.observe.metrics import build_metrics
from hawker.settings import Settings
from hawker.worker.lifecycle import FLOWS

GENERATED = Path(__file__).parents[1] / "docs" / "generated"
_JUDGED = "conformance.md"  # written by `make conformance`, and held to the code by tests/conformance/test_page.py
_NOTE = "Written by `make docs` from the code; do not edit."


def pages() -> dict[str, str]:
    """File names below `docs/generated/` and what is in them."""
    flows = {f"flows/{flow.name}.md": page(flow) for flow in FLOWS}
    tables = {"errors.md": errors(), "metrics.md": metrics(), "settings.md": settings()}
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
    yield from ("", "| Setting | Type | Default |", "|---|---|---|")
    for field in msgspec.structs.fields(Settings):
        kind = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        default = "" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`"
        yield f"| `{field.name}` | {kind.replace('pathlib.', '').replace('|', 'or')} | {default} |"


def metrics() -> Iterator[str]:
    yield from ("# Metrics", "", _NOTE, "")
    yield "Beside these, `process_*` has the daemon's cpu, memory, open files and start, named as everywhere."
    yield from ("", "| Metric | Type | Labels | What |", "|---|---|---|---|")
    for family in build_metrics("").families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.text} |"


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
    old = stale(pages(), GENERATED)
    if "--check" not in sys.argv:
        write(pages(), GENERATED)
        print(f"docs: {len(old)} pages written" if old else "docs: up to date")
        return 0
    for name in old:
        print(f"docs/generated/{name} is not what the code says; run `make docs`", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    raise SystemExit(main())

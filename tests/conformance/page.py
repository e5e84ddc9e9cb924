"""The conformance page: what is served, from the code; and what the judges found when they last ran."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hawker.api.contract.certificate import ORDER_CERTIFICATE
from hawker.api.openapi import PREFIX, Schemas, reached
from hawker.api.routes import ROUTES, UNSERVED
from hawker.api.server import ANY_METHOD, Dispatch, Found
from hawker.config.rules import NOT_SERVED
from hawker.runtime.driver import Features
from tests.conformance.differences import DIFFERENCES
from tests.conformance.exclusions import EXCLUSIONS

OFFICIAL = Path(__file__).with_name("machines-openapi3.json")
PAGE = Path(__file__).parents[2] / "docs" / "generated" / "conformance.md"
LAST_RUN = "## The last run"
_NO_ABILITY = ("driver", "lacks_swap", "overhead_mib", "user_namespace", "lacks_user_namespace")
_FEATURES = tuple(f"`{name}`" for name in Features.__struct_fields__ if name not in _NO_ABILITY)
_NOTE = "Written by `make conformance`; do not edit."


def from_the_code() -> str:
    """All but the last run."""
    return "\n".join([*_endpoints(), *_fields(), *_differences(), *_explained()]) + "\n"


def last_run(date: str, version: str, passed: Mapping[str, int], answers: Mapping[str, Counter[int]]) -> str:
    lines = [LAST_RUN, "", f"On {date}, version {version}, against the official document.", ""]
    lines += ["| Check | Passed |", "|---|---|", *(f"| {name} | {count} |" for name, count in sorted(passed.items()))]
    lines += ["", "| Operation | Answers |", "|---|---|"]
    for name, counts in sorted(answers.items()):
        lines.append(f"| {name} | {', '.join(f'{count} x {status}' for status, count in sorted(counts.items()))} |")
    return "\n".join(lines) + "\n"


REFUSED = {ORDER_CERTIFICATE.name: "501: ordering certificates"}
"""Calls that a node knows, and answers 501."""


def official() -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(OFFICIAL.read_bytes())
    return document


def _endpoints() -> Iterator[str]:
    yield from ("# Conformance", "", _NOTE, "", "## Endpoints of the official document", "")
    yield from ("| Endpoint | Served |", "|---|---|")
    served = _served()
    for path, operations in official()["paths"].items():
        for method in operations:
            found = served.find(method.upper(), f"/v1{path}".replace("{", "").replace("}", ""))
            what = found.target if isinstance(found, Found) else "no"
            yield f"| {method.upper()} `{path}` | {what} |"
    yield ""
    yield "Each is called by the official document through schemathesis (`tests/conformance/test_documents.py`)."


def _served() -> Dispatch[str]:
    dispatch: Dispatch[str] = Dispatch()
    for route in ROUTES:
        dispatch.add(route.method, route.path, REFUSED.get(route.name, "yes"))
        for alias in route.aliases:
            dispatch.add(alias.method, alias.path, "yes")
    for unserved in UNSERVED:
        dispatch.add(ANY_METHOD, unserved.path, f"501: {unserved.what}")
    return dispatch


def _fields() -> Iterator[str]:
    yield from ("", "## Fields of a machine's config", "")
    yield "Honoured, but for what is below. What a driver lacks of"
    yield f"{', '.join(_FEATURES)} it refuses by name."
    yield ""
    schemas = Schemas(ROUTES).all
    for name in sorted(reached(schemas, [{"$ref": f"{PREFIX}MachineConfig"}])):
        if "properties" in schemas[name]:
            yield f"- **{name}**: {', '.join(f'`{field}`' for field in schemas[name]['properties'])}"
    yield from ("", "| Refused | Why |", "|---|---|")
    yield from (f"| `{entry.path}` | {entry.reason} |" for entry in NOT_SERVED)


def _differences() -> Iterator[str]:
    yield from ("", "## Where document and wire differ", "", "| | What | Served |", "|---|---|---|")
    yield from (f"| {letter} | {what} | {served} |" for letter, (what, served) in DIFFERENCES.items())


def _explained() -> Iterator[str]:
    yield from ("", "## What is explained to the judge", "", "| Check | Status | Why |", "|---|---|---|")
    for each in EXCLUSIONS:
        yield f"| {each.check} | {', '.join(map(str, each.statuses))} | {each.why} |"

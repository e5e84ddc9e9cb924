"""A node that runs, judged by the official document and by its own: each operation in short, or with boundary values
and chains of calls as well. JUDGE=long tries more; JUDGE=page also writes the conformance page."""

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from hawker.clock import SystemClock
from hawker.version import VERSION
from tests.conformance.exclusions import unexplained, unneeded
from tests.conformance.judge import Effort, Verdict, judge
from tests.conformance.page import PAGE, from_the_code, last_run
from tests.conformance.page import official as document
from tests.conformance.stock import Stock
from tests.e2e.running_node import RunningNode, running_node

pytestmark = pytest.mark.slow

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "positive_data_acceptance",
    "use_after_free",
    "ensure_resource_availability",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "object_level_authorization",
    "ignored_auth",
)
SHORT = Effort(examples=1, boundaries=False)
THOROUGH = Effort(examples=100, whole=True) if os.environ.get("JUDGE") == "long" else Effort(examples=3)
LONG = [
    pytest.mark.long(reason="makes 10,000 calls; one of each kind and operation is the short form"),
    pytest.mark.timeout(3600),  # minutes; more on a busy host
]
EITHER = pytest.mark.parametrize(
    "official", [SHORT, pytest.param(THOROUGH, marks=LONG)], indirect=True, ids=["short", "thorough"]
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("judged"), "--ephemeral", "--no-rate-limits") as node:
        yield node


@pytest.fixture(scope="module")
def stock(node: RunningNode) -> Stock:
    return Stock(node)


@pytest.fixture(scope="module")
def official(request: pytest.FixtureRequest, stock: Stock) -> Verdict:
    verdict = judge(document(), stock, root="/v1", effort=request.param)
    if os.environ.get("JUDGE") == "page" and request.param is THOROUGH:
        date = datetime.fromtimestamp(SystemClock().now(), UTC).date().isoformat()
        PAGE.write_text(f"{from_the_code()}\n{last_run(date, VERSION, verdict.passed, verdict.answers)}")
    return verdict


@EITHER
def test_every_objection_of_the_official_document_is_explained(official: Verdict) -> None:
    left = unexplained(official.findings)
    assert not left, "\n".join(map(str, left[:20]))
    assert not official.errors, official.errors


@EITHER
def test_every_exclusion_still_explains_a_finding(official: Verdict) -> None:
    assert [each.why for each in unneeded(official.findings, official.reach)] == []


@EITHER
def test_every_operation_of_the_official_document_was_answered(official: Verdict) -> None:
    paths = document()["paths"]
    assert set(official.answers) == {f"{method.upper()} {path}" for path, of in paths.items() for method in of}


@EITHER
def test_every_check_was_made(official: Verdict) -> None:
    assert not set(CHECKS) - set(official.passed)


@pytest.mark.parametrize("effort", [SHORT, pytest.param(THOROUGH, marks=LONG)], ids=["short", "thorough"])
def test_our_own_document_is_true(effort: Effort, stock: Stock) -> None:
    verdict = judge(_own(stock), stock, root="", effort=effort)
    assert not verdict.findings, "\n".join(map(str, verdict.findings[:20]))
    assert not verdict.errors, verdict.errors


def _own(stock: Stock) -> Mapping[str, Any]:
    """Without the conversations, which are not spoken over plain HTTP."""
    document = stock.ask("GET", "/openapi.json").body
    plain = {
        path: {method: each for method, each in operations.items() if "x-websocket" not in each}
        for path, operations in document["paths"].items()
    }
    return {**document, "paths": {path: each for path, each in plain.items() if each}}

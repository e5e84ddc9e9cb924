"""The judge: a document through schemathesis against a node that runs, with every check on.

What it finds is listed, not raised: the tests say which findings are explained. Deterministic for a seed, up to what a
node answers. Calls that would take long by themselves are made short; calls about things go to what is in stock.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import schemathesis
from schemathesis import Case, HookContext
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder

from tests.conformance.aim import aim
from tests.conformance.stock import Stock

REQUEST_DEADLINE_S = 120
_ORDERS = ("/apps/{app_name}/machines", "/apps/{app_name}/machines/{machine_id}")
_REFUSED = ("400", "401", "403", "404", "405", "406", "409", "415", "422", "428", "429", "431", "5xx")
_ACCEPTED = ("2xx", "3xx", "401", "403", "404", "409", "429", "5xx")


@dataclass(frozen=True, slots=True)
class Finding:
    """A check that an answer failed."""

    operation: str
    check: str
    kind: str
    status: int
    message: str
    sent: str
    answer: str

    def __str__(self) -> str:
        return f"{self.about}\n  {self.message}\n  sent {self.sent}\n  answered {self.answer}"

    @property
    def about(self) -> str:
        return f"{self.operation} {self.status} {self.check} ({self.kind})"


class Reach(IntEnum):
    """Which calls are made: a few random ones of each operation; boundary values too; those of whole configs too."""

    FEW = 0
    BOUNDARIES = 1
    WHOLE = 2


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is tried. Unless it is the `whole`, the boundary values of whole configs are left out: there are
    thousands of them; the random ones stay. Without `boundaries`, all boundary values are left out."""

    seed: int = 1
    examples: int = 5
    whole: bool = False
    boundaries: bool = True

    @property
    def reach(self) -> Reach:
        return Reach.WHOLE if self.whole else Reach.BOUNDARIES if self.boundaries else Reach.FEW


@dataclass(slots=True)
class Verdict:
    """`passed` counts checks by name, `answers` each operation's statuses; `errors` are the judge's own."""

    reach: Reach
    findings: list[Finding] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    answers: dict[str, Counter[int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    calls: int = 0


def judge(document: Mapping[str, Any], stock: Stock, *, root: str, effort: Effort) -> Verdict:
    """Every phase: the document's examples, boundary values, random values, and chains of calls."""
    schema = schemathesis.openapi.from_dict(dict(document), config=_config(effort))
    schema.config.update(
        base_url=stock.node.url + root,
        headers={"Authorization": f"Bearer {stock.node.token}"},
        request_timeout=REQUEST_DEADLINE_S,
        workers=1,
        continue_on_failure=True,
    )
    verdict = Verdict(effort.reach)
    with _with_stock(stock):
        for event in from_schema(schema).execute():
            match event:
                case events.ScenarioFinished():
                    _note(verdict, event.recorder)
                case events.NonFatalError():
                    verdict.errors.append(f"{event.label}: {event.info.title}: {event.info.message}")
                case events.FatalError():
                    verdict.errors.append(str(event.exception))
    return verdict


def _config(effort: Effort) -> SchemathesisConfig:
    """A refusal for what is there now (408, 412) or for a rule that no schema can state (422) is no refusal of data
    that fits the schema; a 400 is. Answers of 501 are looked at by what the document says of them."""
    left_out = [] if effort.whole else [f"POST {root}{path}" for path in _ORDERS for root in ("", "/v1")]
    return SchemathesisConfig.from_dict(
        {
            "seed": effort.seed,
            "generation": {
                "max-examples": effort.examples,
                "no-shrink": True,
                "database": "none",
                "deterministic": True,
            },
            "phases": {
                "coverage": {"enabled": effort.boundaries},
                "stateful": {"generation": {"max-examples": effort.examples}},
            },
            "operations": [{"include-name": name, "phases": {"coverage": {"enabled": False}}} for name in left_out],
            "checks": {
                "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "501"]},
                "positive_data_acceptance": {"expected-statuses": [*_ACCEPTED, "408", "412", "422"]},
                "negative_data_rejection": {"expected-statuses": list(_REFUSED)},
            },
        }
    )


@contextmanager
def _with_stock(stock: Stock) -> Iterator[None]:
    """Global to the library, so undone at once."""

    def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
        aim(case, stock)

    schemathesis.hook(before_call)
    try:
        yield
    finally:
        schemathesis.hooks.unregister(before_call)


def _note(verdict: Verdict, recorder: ScenarioRecorder) -> None:
    for case_id, interaction in recorder.interactions.items():
        verdict.calls += 1
        node = recorder.cases.get(case_id)
        if interaction.response is None or node is None:
            verdict.errors.append(
                f"{recorder.label}: no answer to {interaction.request.method} {interaction.request.uri}"
            )
            continue
        label = node.value.operation.label
        verdict.answers.setdefault(label, Counter())[interaction.response.status_code] += 1
    for case_id, checks in recorder.checks.items():
        for check in checks:
            if check.status is Status.SUCCESS:
                verdict.passed[check.name] += 1
            elif check.failure_info is not None:
                failure = check.failure_info.failure
                about = failure.case_id or case_id
                interaction = recorder.interactions[about]
                response = interaction.response
                body = interaction.request.body
                verdict.findings.append(
                    Finding(
                        operation=recorder.cases[about].value.operation.label,
                        check=check.name,
                        kind=type(failure).__name__,
                        status=response.status_code if response else 0,
                        message=f"{failure.title}: {failure.message}",
                        sent=f"{interaction.request.method} {interaction.request.uri} {(body or b'')[:300]!r}",
                        answer=(response.content or b"")[:300].decode(errors="replace") if response else "",
                    )
                )

"""What a client does with the answers that it gets."""

from hawker.sim.harness.trace import Kind
from hawker.sim.worker.operation import Verb
from hawker.sim.worker.simulation import Outcome, run
from tests.sim.played import call, order, plan


def said(outcome: Outcome) -> list[str]:
    return [line.text for line in outcome.lines if line.kind is Kind.CLIENT]


def test_every_kind_of_call_is_made_and_answered() -> None:
    verbs = [Verb.STOP, Verb.START, Verb.RESTART, Verb.UPDATE, Verb.METADATA, Verb.LEASE, Verb.RELEASE, Verb.LOOK]
    calls = [call(verb, 10.0 * number, amount=60) for number, verb in enumerate(verbs, 1)]
    calls += [call(Verb.WAIT, 100, word="started", amount=20), call(Verb.DESTROY, 110, word="force")]
    outcome = run(plan(order(), *calls))
    assert outcome.found == () and outcome.operations == 11
    assert [text.split()[3] for text in said(outcome) if " is told" in text] == ["create", *verbs, "wait", "destroy"]


def test_a_call_on_a_machine_that_was_never_made_is_not_made() -> None:
    assert run(plan(call(Verb.STOP, 1, label="nobody-1"))).operations == 0


def test_a_refusal_is_an_answer() -> None:
    outcome = run(plan(order(word="not launched"), call(Verb.RELEASE, 5), call(Verb.DESTROY, 6), call(Verb.START, 20)))
    assert outcome.operations == 3 and "refused start" in said(outcome)[-1] and outcome.found == ()

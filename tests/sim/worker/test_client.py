"""What a client does with the answers that it gets."""

from hawker.sim.harness.trace import Speaker
from hawker.sim.worker.operation import WorkerVerb
from hawker.sim.worker.simulation import WorkerOutcome, run
from tests.sim.played import call, order, plan


def said(outcome: WorkerOutcome) -> list[str]:
    return [line.text for line in outcome.lines if line.kind is Speaker.CLIENT]


def test_every_kind_of_call_is_made_and_answered() -> None:
    verbs = [
        WorkerVerb.STOP,
        WorkerVerb.START,
        WorkerVerb.RESTART,
        WorkerVerb.UPDATE,
        WorkerVerb.METADATA,
        WorkerVerb.LEASE,
        WorkerVerb.RELEASE,
        WorkerVerb.LOOK,
    ]
    calls = [call(verb, 10.0 * number, amount=60) for number, verb in enumerate(verbs, 1)]
    calls += [call(WorkerVerb.WAIT, 100, word="started", amount=20), call(WorkerVerb.DESTROY, 110, word="force")]
    outcome = run(plan(order(), *calls))
    assert outcome.found == () and outcome.operations == 11
    assert [text.split()[3] for text in said(outcome) if " is told" in text] == ["create", *verbs, "wait", "destroy"]


def test_a_call_on_a_machine_that_was_never_made_is_not_made() -> None:
    assert run(plan(call(WorkerVerb.STOP, 1, label="nobody-1"))).operations == 0


def test_a_refusal_is_an_answer() -> None:
    outcome = run(
        plan(
            order(word="not launched"),
            call(WorkerVerb.RELEASE, 5),
            call(WorkerVerb.DESTROY, 6),
            call(WorkerVerb.START, 20),
        )
    )
    assert outcome.operations == 3 and "refused start" in said(outcome)[-1] and outcome.found == ()

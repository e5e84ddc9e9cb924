from msgspec.structs import replace

from hawker.proof.violation import Invariant, Violation
from hawker.sim.fleet.plan import draw
from hawker.sim.fleet.simulation import FleetOutcome, FleetRequest, repeat, report_of, summary


def outcome() -> FleetOutcome:
    return FleetOutcome(
        plan=draw(3),
        operations=5,
        filled=4,
        calls=9,
        blows=3,
        kills=2,
        takeovers=1,
        ended_at=61.5,
        digest="abcd",
        lines=(),
        found=(),
    )


def test_a_summary_is_one_line_with_the_digest_and_says_when_something_was_found() -> None:
    plan = draw(3)
    told = "5 operations, 4 orders filled, 9 calls, 3 faults, 2 daemons killed, 1 takeovers, 62 s, digest abcd"
    assert summary(outcome()) == f"seed 3: {plan.nodes} nodes, {told}"
    found = replace(outcome(), found=(Violation(Invariant.KEPT, "m", "gone"),))
    assert summary(found).endswith("abcd, FOUND") and report_of(found)["found"] == [str(found.found[0])]


def test_the_command_repeats_the_run_as_it_was_cut() -> None:
    cut = replace(outcome(), plan=draw(3).only(frozenset({2, 5})))
    assert repeat(cut, cut.plan.nodes, FleetRequest()) == "hawker sim fleet --seeds 3-3 --only 2,5"
    asked = FleetRequest(minutes=2, nodes=9, plant="alone")
    assert repeat(cut, 9, asked) == (
        f"hawker sim fleet --seeds 3-3 --nodes 9 --minutes 2 --plant alone --narrow {cut.plan.nodes} --only 2,5"
    )

from hawker.proof.violation import Invariant, Violation


def test_a_violation_reads_as_a_sentence() -> None:
    assert str(Violation(Invariant.KEPT, "m", "is forgotten")) == "acknowledged means kept: m: is forgotten"

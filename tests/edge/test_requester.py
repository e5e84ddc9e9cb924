"""What requests of a process share."""

from hawker.edge.requester import KEPT_BYTES_OF_ALL, KeptBodies


def test_bodies_are_kept_up_to_a_bound_for_all_and_what_was_given_back_may_be_taken_again() -> None:
    kept = KeptBodies()
    assert kept.take(KEPT_BYTES_OF_ALL) and not kept.take(1)
    kept.kept_bytes -= 10
    assert kept.take(10) and not kept.take(1)

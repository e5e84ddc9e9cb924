from hawker.sim.moves.move_plan import HOSTS, MoveVerb, draw


def test_plans_have_every_kind_of_blow_at_every_host() -> None:
    verbs = {operation.verb for seed in range(1, 14) for operation in draw(seed).operations}
    assert verbs == set(MoveVerb)
    assert {operation.label for operation in draw(1).operations} == {str(each + 1) for each in range(HOSTS)}

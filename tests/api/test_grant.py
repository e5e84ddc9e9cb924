from hawker.api.grant import Everything
from hawker.permission import Action, Attempt


def test_a_caller_who_needs_no_token_may_do_everything() -> None:
    grant = Everything("root")
    grant.check(Attempt(Action.ALL))
    assert grant.permits(Attempt(Action.CONTROL, app="a")) and grant.name == "root"

import pytest

from hawker.permission import Action, actions_of, letters_of


@pytest.mark.parametrize(
    ("letters", "actions"),
    [
        ("", Action.NONE),
        ("r", Action.READ),
        ("rw", Action.READ | Action.WRITE),
        ("*", Action.ALL),
        ("rwcdC", Action.ALL),
    ],
)
def test_letters_stand_for_actions(letters: str, actions: Action) -> None:
    assert actions_of(letters) == actions
    assert actions_of(letters_of(actions)) == actions


def test_the_values_are_those_of_the_official_document() -> None:
    assert [action.value for action in (*Action, Action.ALL)] == [1, 2, 4, 8, 16, 31]


def test_a_letter_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="action 'x' is none of r"):
        actions_of("rx")

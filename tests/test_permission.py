import pytest

from hawker.permission import Action, actions_of, covers, letters_of, words_of


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
    official = [action for action in Action if action is not Action.METRICS]
    assert [action.value for action in (*official, Action.ALL)] == [1, 2, 4, 8, 16, 31]


def test_a_reader_may_scrape_and_a_scraper_may_do_nothing_else() -> None:
    assert covers(actions_of("r"), Action.METRICS) and covers(actions_of("*"), Action.METRICS)
    assert covers(actions_of("m"), Action.METRICS) and not covers(actions_of("wcdC"), Action.METRICS)
    assert not any(covers(actions_of("m"), action) for action in Action if action is not Action.METRICS)


def test_a_letter_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="action 'x' is none of r"):
        actions_of("rx")


def test_letters_are_told_with_what_they_stand_for() -> None:
    assert words_of(Action.WRITE) == "w (write)"
    assert words_of(Action.READ | Action.CONTROL) == "r (read), C (control)"

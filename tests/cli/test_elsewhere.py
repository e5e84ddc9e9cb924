import re
from itertools import takewhile

import click
import pytest

from hawker.cli.elsewhere import COMMANDS, OPTIONS, TOLD, WITHIN
from hawker.cli.exits import ExitStatus
from hawker.cli.lazy import LazyGroup
from hawker.cli.main import ROOT, TABLE
from tests.cli.conftest import Hawker

_COMMAND = re.compile(r"`hawker ([a-z -]+?)(?: [A-Z|`].*?)?`")


def known(words: str) -> bool:
    """Whether these words, as far as they are neither options nor placeholders, are a command."""
    command: click.Command | None = ROOT
    for word in takewhile(lambda each: each[0].islower(), words.split()):
        match command:
            case LazyGroup():
                command = command.table[word].load() if word in command.table else None
            case click.Group():
                command = command.get_command(click.Context(command), word)
            case _:
                return False
    return command is not None


@pytest.mark.parametrize(("word", "words"), COMMANDS.items(), ids=COMMANDS)
def test_a_word_of_elsewhere_leads_to_a_command_and_is_none_itself(word: str, words: str) -> None:
    assert known(words) and word not in TABLE


@pytest.mark.parametrize("said", [*TOLD.values(), *OPTIONS.values()])
def test_sentences_name_commands_that_there_are(said: str) -> None:
    assert all(known(each) or each == "COMMAND" for each in _COMMAND.findall(said))


@pytest.mark.parametrize("word", ["suspend", "remove", "inspect", "login", "get", "ssh", "job"])
def test_people_are_led_to_the_command(hawker: Hawker, word: str) -> None:
    said = hawker(word, "x")
    assert said.status == ExitStatus.USAGE and f"No such command '{word}': it is `hawker " in said.err
    words = said.err.partition("it is `hawker ")[2].partition("`")[0].split()
    assert hawker(*words, "--help").status == ExitStatus.OK


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("node ls", "hawker node list"),
        ("apps rm x", "hawker apps destroy"),
        ("images rm x", "hawker images remove"),
        ("secrets delete A", "hawker secrets unset"),
        ("node inspect x", "hawker node show"),
        ("tokens rm x", "hawker tokens revoke"),
        ("machine get", "hawker machine list"),
        ("scale show", "hawker ps -a APP"),
        ("scale memory 512", "hawker deploy"),
    ],
)
def test_words_within_a_group_are_led_to_its_own(hawker: Hawker, words: str, told: str) -> None:
    said = hawker(*words.split())
    assert (said.status, f"`{told}`" in said.err) == (ExitStatus.USAGE, True), said.err


def test_no_word_within_a_group_leads_to_itself() -> None:
    assert all(word not in others or word in ("remove", "destroy", "show") for word, others in WITHIN.items())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("run --mount type=volume x", "-v VOLUME:/path"),
        ("run --network host x", "private network"),
        ("run -w /srv x", "cd /path"),
        ("run --port 80 x", "-p 8080:80"),
        ("machine update web --vm-memory 512", "--memory 512m"),
        ("registry login reg.example -u ada -p secret", "--password-stdin"),
        ("images pull x -p secret", "--password-stdin"),
        ("run --nothing x", "see `hawker run --help`"),
        ("ps --network x", "see `hawker ps --help`"),
    ],
)
def test_options_of_elsewhere_are_answered_with_what_to_type(hawker: Hawker, words: str, hint: str) -> None:
    said = hawker(*words.split())
    assert said.status == ExitStatus.USAGE
    assert hint in said.err.splitlines()[-1] and said.err.splitlines()[-1].startswith("hint: ")


def test_no_option_of_elsewhere_is_one_of_here() -> None:
    run = TABLE["run"].load()
    own = {each for parameter in run.params for each in (*parameter.opts, *parameter.secondary_opts)}
    assert set(OPTIONS) & own == set()

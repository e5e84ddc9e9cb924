"""A flow's page is drawn from its table alone."""

from hawker.fsm.contract import Abort, Backoff, Outcome, Step
from hawker.fsm.diagram import page
from tests.fsm.serving import Ctx, flow, noting


async def cut(context: Ctx) -> Outcome:
    """Cut the cloth | with scissors.

    More about it."""
    return Abort("never")


async def mend(context: Ctx) -> None:
    """Sew it up again."""


CUT = Step("cut", cut, mend, timeout_s=90, backoff=Backoff(attempts=3, first_s=0.5, cap_s=8), queue="tables")
MAKE = flow("make", Step("look", noting("look")), CUT, Step("sew", noting("sew"), durable=True), deadline_s=600)


def test_the_diagram_has_the_way_forward_and_the_way_back() -> None:
    text = page(MAKE)
    diagram = text.split("```mermaid\n")[1].split("```")[0].splitlines()
    assert [line.strip() for line in diagram] == [
        "stateDiagram-v2",
        "[*] --> look",
        "look --> cut",
        "cut --> sew",
        "sew --> done",
        "done --> [*]",
        "look --> failed: fails",
        "cut --> undo_cut: fails",
        "sew --> undo_cut: fails",
        "undo_cut --> failed",
        "failed --> [*]",
    ]


def test_the_table_has_each_steps_limits() -> None:
    lines = page(MAKE).splitlines()
    assert "# Flow `make`" in lines
    assert "Input: `Job`. It is given up after 600 s." in lines
    row = "| `cut` | Cut the cloth \\| with scissors. | 90 s | 3 | 0.5 to 8 s | `tables` |  | Sew it up again. |"
    assert row in lines
    assert "| `sew` |  | 60 s | 5 | 0.2 to 10 s |  | yes |  |" in lines


def test_the_page_is_the_same_each_time() -> None:
    assert page(MAKE) == page(MAKE)

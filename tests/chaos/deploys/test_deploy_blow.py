"""What may befall a deploy, and how it may end."""

import pytest

from hawker.chaos.deploys.deploy_blow import WHOLE, BlowKind, TrialBlow


@pytest.mark.parametrize("kind", WHOLE)
def test_a_blow_says_how_its_deploy_may_end(kind: BlowKind) -> None:
    assert kind.ends
    assert "complete" not in kind.ends if kind.is_bad else True
    assert str(TrialBlow("rolling", kind)) == kind.value


def test_a_node_dies_at_a_place() -> None:
    assert (
        str(TrialBlow("rolling", BlowKind.PLACE, "update.halt.after")) == "a machine's node dies at update.halt.after"
    )
    assert BlowKind.PLACE not in WHOLE

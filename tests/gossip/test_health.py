from hawker.gossip.health import LocalHealth


def test_patience_grows_with_trouble_and_has_bounds() -> None:
    health = LocalHealth(8)
    assert health.patience == 1
    health.better()
    assert health.score == 0
    health.worse(3)
    assert health.patience == 4
    health.worse(100)
    assert health.score == 8
    health.better()
    assert health.score == 7


def test_without_lifeguard_nothing_matters() -> None:
    health = LocalHealth(0)
    health.worse(5)
    assert health.patience == 1

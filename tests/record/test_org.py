from hawker.record.org import Amount, QuotaRule

HAS = Amount(machines=3, cpus=4, memory_mb=1024)


def test_a_limit_says_by_how_much_it_would_be_exceeded() -> None:
    limits = QuotaRule(machines=4, memory_mb=1500)
    assert limits.over(HAS, Amount(machines=1, cpus=99, memory_mb=256)) == {}
    assert limits.over(HAS, Amount(machines=3, memory_mb=512)) == {"machines": 2, "memory_mb": 36}


def test_an_app_over_its_quota_may_still_ask_for_other_things_and_for_less() -> None:
    limits = QuotaRule(machines=1, volumes=1)
    assert limits.over(HAS, Amount(volumes=1)) == {}
    assert limits.over(HAS, Amount(machines=-1)) == {} and limits.over(HAS, Amount()) == {}
    assert limits.over(HAS, Amount(machines=1)) == {"machines": 3}


def test_nothing_is_a_limit_of_none() -> None:
    assert QuotaRule(machines=0).over(Amount(), Amount(machines=1)) == {"machines": 1}
    assert QuotaRule().over(HAS, Amount(machines=1 << 40)) == {}


def test_amounts_are_added_and_taken_away_by_name() -> None:
    assert HAS.plus(Amount(cpus=1)).minus(HAS) == Amount(cpus=1)

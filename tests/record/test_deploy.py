"""Where deploys and their slots are kept."""

from hawker.record.deploy import deploy_key, slot_key


def test_keys_are_in_the_order_of_their_numbers_and_slots_below_their_deploy() -> None:
    assert deploy_key("shop", 9) < deploy_key("shop", 10)
    assert slot_key("shop", 1, 9) < slot_key("shop", 1, 10) < slot_key("shop", 2, 0)
    assert slot_key("shop", 1, 9).startswith(f"{deploy_key('shop', 1)}/")

"""`hawker releases`."""

from hawker.api.contract.release import Release
from hawker.cli.commands.releases import differences
from tests.cli.conftest import Hawker
from tests.cli.fake_node import AT, FakeNode


def test_releases_are_listed_newest_first(hawker: Hawker) -> None:
    heading, *rows = hawker("releases", "-a", "shop").out.splitlines()
    assert heading.split() == ["VERSION", "STATUS", "STRATEGY", "IMAGE", "USER", "CREATED"]
    assert [row.split()[:4] for row in rows] == [
        ["v3", "failed", "rolling", "registry.local/shop:3"],
        ["v2", "complete", "rolling", "registry.local/shop:2"],
    ]


def test_so_many_releases_are_asked_for(hawker: Hawker, node: FakeNode) -> None:
    assert len(hawker("releases", "-a", "shop", "-n", "1").out.splitlines()) == 2
    assert node.call("list_releases").query.limit == 1


def release(version: int, image: str, definition: object) -> Release:
    return Release(
        id=f"shop.{version}", app_name="shop", version=version, status="complete", strategy="rolling", image=image,
        description="", user="ann", created_at=AT, updated_at=AT, definition=definition,
    )  # fmt: skip


def test_a_difference_is_told_by_its_path_and_no_value_of_the_environment_is_shown() -> None:
    older = release(2, "shop:2", {"env": {"KEY": "hidden"}, "vm": [{"memory": "1gb"}], "app": "shop", "gone": True})
    newer = release(3, "shop:3", {"env": {"KEY": "secret"}, "vm": [{"memory": "2gb"}, {"cpus": 2}], "app": "shop"})
    assert [(each.path, each.before, each.after) for each in differences(older, newer)] == [
        ("image", "shop:2", "shop:3"),
        ("env.KEY", "(not shown)", "(not shown)"),
        ("gone", "true", None),
        ("vm[0].memory", "1gb", "2gb"),
        ("vm[1].cpus", None, "2"),
    ]
    assert list(differences(older, older)) == []


def test_the_newest_release_is_compared_with_the_one_before_it(hawker: Hawker) -> None:
    found = hawker("releases", "diff", "-a", "shop").out
    assert ["image", "registry.local/shop:2", "registry.local/shop:3"] in [line.split() for line in found.splitlines()]
    assert hawker("releases", "diff", "2", "2", "-a", "shop").out == "v2 and v2 are the same\n"
    refused = hawker("releases", "diff", "1", "9", "-a", "shop")
    assert refused.status == 1 and "no release v1 to compare; it has v2, v3" in refused.err


def test_an_app_that_is_named_before_the_comparison_is_the_one_that_is_asked(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("releases", "-a", "shop", "diff").status == 0
    assert node.call("list_releases").params.app_name == "shop"
    refused = hawker("releases", "-n", "1", "diff", "-a", "shop")
    assert refused.status == 2 and "--limit is of `hawker releases` alone" in refused.err

import msgspec

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode
from tests.cli.fake_volumes import volume

FREE, USED, LEFT = "vol_00000000000000aa", "vol_00000000000000ab", "vol_00000000000000b0"


def shelve(node: FakeNode) -> None:
    node.add("shop")
    node.add("blog")
    node.keep("shop", volume(FREE), volume(USED, name="logs", attached_machine_id="3d8f0000000001", encrypted=True))
    node.keep("blog", volume(LEFT, state="pending_destroy"))


def test_volumes_of_all_apps_are_listed_without_those_that_were_destroyed(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    heading, *rows = (line.split() for line in hawker("volumes", "list", "-o", "wide").out.splitlines())
    assert heading == ["ID", "NAME", "APP", "STATE", "HOST", "SIZE", "MACHINE", "AGE", "USED", "REGION", "ENCRYPTED"]
    assert rows[0][:4] == [FREE, "data", "shop", "created"] and rows[0][5:8] == ["3", "GiB", "-"]
    assert rows[0][-4:] == ["5.0", "MiB", "local", "no"]
    assert rows[1][0] == USED and rows[1][7] == "3d8f0000000001" and rows[1][-1] == "yes"
    assert len(rows) == 2


def test_a_list_of_volumes_fits_80_columns(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    heading, *rows = hawker("volumes", "list").out.splitlines()
    assert heading.split() == ["ID", "NAME", "APP", "STATE", "SIZE", "MACHINE", "AGE"]
    assert len(rows) == 2 and max(map(len, rows)) <= 80


def test_all_of_them_are_listed_on_request(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    assert hawker("volumes", "list", "--all", "-q").out.split() == [FREE, USED, LEFT]
    assert hawker("volumes", "list", "-a", "blog", "-q").out == ""


def test_the_list_as_json_names_the_app(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    first, _ = msgspec.json.decode(hawker("volumes", "list", "-o", "json").out)
    assert (first["app"], first["volume"]["id"], first["volume"]["attached_machine_id"]) == ("shop", FREE, None)


def test_a_volume_is_shown_by_its_name_or_the_beginning_of_its_id(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    for reference in ("logs", "vol_00000000000000ab", LEFT[:19]):
        said = hawker("volumes", "show", reference)
        assert said.status == ExitStatus.OK
        shown = dict(line.split(maxsplit=1) for line in said.out.splitlines())
        assert shown["id"] in (USED, LEFT)
        assert (shown["used"], shown["snapshots"]) == ("5.0 MiB of 3.0 GiB", "one a day, kept for 5 days")


def test_a_name_of_several_or_of_none_is_said(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    assert " matches vol_" in hawker("volumes", "show", "vol_00000000000000a").err
    said = hawker("volumes", "show", "nothing")
    assert said.status == ExitStatus.NOT_FOUND and "hawker volumes list" in said.err


def test_a_list_says_that_a_host_did_not_answer(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("volumes", "list", "-a", "shop").err == ""
    node.missing_regions = ("ams",)
    assert "a host in region 'ams' does not answer" in hawker("volumes", "list", "-a", "shop").err

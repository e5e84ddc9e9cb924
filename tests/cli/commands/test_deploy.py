"""`hawker deploy` and the words to a deploy under way."""

from pathlib import Path

import msgspec
import pytest

from hawker.errors import Conflict, HawkerError, NotFound, Unprocessable
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode
from tests.cli.fake_releases import deploy_info, slot

FILE = 'app = "shop"\n[build]\nimage = "registry.local/shop:4"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "fly.toml"
    path.write_text(FILE)
    return path


def test_a_deploy_is_handed_over_and_followed_to_its_end(hawker: Hawker, node: FakeNode, file: Path) -> None:
    said = hawker("deploy")
    assert said.status == 0
    assert said.err.splitlines()[1:] == [
        "release 4 of shop: rolling, 2 machines, registry.local/shop:4",
        "0/2 of release 4, 0 under way: begins",
        "web  m0  ord  updating",
        "0/2 of release 4, 1 under way: machines come to the release",
        "web  m0  ord  updated",
        "web  m1  ord  proving itself: check up is critical",
        "web  m1  ord  updated",
        "release 4 of shop: complete",
    ]
    body = node.call("create_deploy").body
    assert body.definition == {"app": "shop", "build": {"image": "registry.local/shop:4"}}


def test_a_deploy_that_was_taken_back_exits_with_1_and_says_why(hawker: Hawker, node: FakeNode, file: Path) -> None:
    node.deploys = [deploy_info(1, "rolled_back", slot(0, "returned", "it crashed"), error="m0: it crashed")]
    said = hawker("deploy")
    assert said.status == 1
    assert said.err.splitlines()[-2:] == [
        "web  m0  ord  taken back: it crashed",
        "release 4 of shop: rolled_back: m0: it crashed",
    ]


def test_an_option_wins_over_the_file(hawker: Hawker, node: FakeNode, file: Path) -> None:
    words = ("-a", "other", "-i", "one:1", "--strategy", "canary", "--no-ha", "--label", "abc", "--detach")
    assert hawker("deploy", *words).status == 0
    call = node.call("create_deploy")
    assert call.params.app_name == "other"
    assert (call.body.image, call.body.strategy, call.body.ha, call.body.label) == ("one:1", "canary", False, "abc")
    assert "get_deploy" not in node.calls


def test_a_deploy_is_narrowed_and_paced(hawker: Hawker, node: FakeNode, file: Path) -> None:
    file.write_text(FILE + "[deploy]\nstrategy = 'canary'\n")
    narrowed = ("--only-regions", "ams, lhr", "--exclude-machines", "m1", "--process-groups", "web", "--update-only")
    assert hawker("deploy", *narrowed, "--wait-timeout", "10m", "--max-unavailable", "2", "--detach").status == 0
    body = node.call("create_deploy").body
    assert body.definition["deploy"] == {"strategy": "canary", "wait_timeout": "10m", "max_unavailable": 2.0}
    assert (body.only_regions, body.exclude_machines, body.process_groups) == (("ams", "lhr"), ("m1",), ("web",))
    assert body.update_only and body.only_machines is None


def test_the_content_of_local_files_goes_along(hawker: Hawker, node: FakeNode, file: Path) -> None:
    (file.parent / "motd").write_text("hello")
    file.write_text(FILE + '[[files]]\nguest_path = "/etc/motd"\nlocal_path = "motd"\n')
    hawker("deploy", "--detach")
    body = node.call("create_deploy").body
    assert (body.definition or {})["files"] == [{"guest_path": "/etc/motd", "raw_value": "aGVsbG8="}]


def test_a_single_table_of_files_is_a_list_of_one(hawker: Hawker, node: FakeNode, file: Path) -> None:
    file.write_text(FILE + "[files]\nguest_path = '/a'\nlocal_path = 'fly.toml'\n")
    assert hawker("deploy", "--detach").status == 0
    (sent,) = (node.call("create_deploy").body.definition or {})["files"]
    assert sent["guest_path"] == "/a" and sent["raw_value"] and "local_path" not in sent


def test_an_empty_deploy_section_is_paced_by_options(hawker: Hawker, node: FakeNode, file: Path) -> None:
    path = file.with_name("fly.yaml")
    path.write_text("app: shop\nbuild:\n  image: registry.local/shop:4\ndeploy:\n")
    assert hawker("deploy", "--detach", "-c", "fly.yaml", "--wait-timeout", "2m").status == 0
    assert (node.call("create_deploy").body.definition or {})["deploy"] == {"wait_timeout": "2m"}


def test_a_first_deploy_makes_the_app(hawker: Hawker, node: FakeNode, file: Path) -> None:
    node.failures["get_app"] = NotFound("app not found")
    assert "created app shop" in hawker("deploy", "--detach").err
    assert node.call("create_app").body.name == "shop"


@pytest.mark.parametrize(
    ("words", "failure", "said"),
    [
        ((), None, "it is reached at "),
        ((), Unprocessable("this host has no IPv4 address"), "no address for it: this host has no IPv4"),
        (("--no-public-ips",), None, ""),
    ],
)
def test_a_new_app_that_speaks_http_gets_an_address(
    hawker: Hawker, node: FakeNode, file: Path, words: tuple[str, ...], failure: HawkerError | None, said: str
) -> None:
    file.write_text(FILE + "[http_service]\ninternal_port = 8080\n")
    node.failures["get_app"] = NotFound("app not found")
    if failure is not None:
        node.failures["assign_ip"] = failure
    assert said in hawker("deploy", "--detach", *words).err
    if words:
        assert "assign_ip" not in node.calls
    else:
        assert node.call("assign_ip").body.type == "shared_v4"


@pytest.mark.parametrize(("deployed", "addressed"), [(False, False), (True, False), (False, True)])
def test_an_app_without_deploys_and_addresses_gets_one_too(
    hawker: Hawker, node: FakeNode, file: Path, deployed: bool, addressed: bool
) -> None:
    file.write_text(FILE + "[http_service]\ninternal_port = 8080\n")
    node.deployed = deployed
    node.ips = node.ips if addressed else ()
    node.apps["shop"] = {}
    hawker("deploy", "--detach")
    assert ("assign_ip" in node.calls) is not (deployed or addressed)


def test_a_dry_run_is_shown_and_not_followed(hawker: Hawker, node: FakeNode, file: Path) -> None:
    said = hawker("deploy", "--dry-run")
    assert said.out.splitlines()[-1].split() == ["web", "m1", "ord", "update", "waiting", "-"]
    assert "get_deploy" not in node.calls


@pytest.mark.parametrize("failure", [None, Unprocessable("the image is not there")])
def test_a_dry_run_of_a_new_app_leaves_no_app(
    hawker: Hawker, node: FakeNode, file: Path, failure: HawkerError | None
) -> None:
    node.failures["get_app"] = NotFound("app not found")
    if failure is not None:
        node.failures["create_deploy"] = failure
    said = hawker("deploy", "--dry-run")
    assert (said.status == 0) is (failure is None) and "created" not in said.err
    assert node.call("create_app").body.name == node.call("delete_app").params.app_name == "shop"
    assert not node.call("delete_app").query.force


def test_each_state_is_a_line_of_json(hawker: Hawker, file: Path) -> None:
    said = hawker("deploy", "-o", "json")
    found = [msgspec.json.decode(line) for line in said.out.splitlines()]
    assert [each["serial"] for each in found] == [1, 2, 3, 4] and said.status == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[build]\nimage = 'a'\n", "names no app"),
        ("app = 'shop'\n", "names no image"),
        ("app = 'shop'\nsurprise = 1\n", "fly.toml:2:1"),
    ],
)
def test_a_file_that_cannot_be_deployed_is_a_wrong_command_line(
    hawker: Hawker, node: FakeNode, file: Path, text: str, said: str
) -> None:
    file.write_text(text)
    found = hawker("deploy")
    assert found.status == 2 and said in found.err and "create_deploy" not in node.calls


def test_a_deploy_that_is_refused_says_why(hawker: Hawker, node: FakeNode, file: Path) -> None:
    node.failures["create_deploy"] = Conflict("a deploy of app 'shop' is under way")
    found = hawker("deploy")
    assert found.status == 1 and "is under way" in found.err


def test_a_deploy_is_shown_listed_and_watched(hawker: Hawker) -> None:
    assert hawker("deploy", "status", "-a", "shop").out.splitlines()[0].split() == ["release", "v4"]
    assert hawker("deploy", "list", "-a", "shop").out.splitlines()[1].split()[:3] == ["v4", "complete", "rolling"]
    assert hawker("deploy", "watch", "-a", "shop").err.splitlines()[-1] == "release 4 of shop: complete"


@pytest.mark.parametrize(("word", "status"), [("pause", "paused"), ("resume", "running"), ("abort", "rolling_back")])
def test_a_word_to_a_deploy(hawker: Hawker, node: FakeNode, word: str, status: str) -> None:
    said = hawker("deploy", word, "v4", "-a", "shop")
    assert said.out.splitlines()[1].split() == ["status", status]
    assert node.call(f"{word}_deploy").params.version == "4"


def test_an_abort_may_keep_what_there_is(hawker: Hawker, node: FakeNode) -> None:
    hawker("deploy", "abort", "--keep", "-a", "shop")
    assert node.call("abort_deploy").body.keep


def test_an_app_that_is_named_before_a_word_wins_over_the_file_and_the_variable(
    hawker: Hawker, node: FakeNode, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for before, after in (("shop", ""), ("", "shop"), ("other", "shop")):
        for variable in ("", "third"):
            monkeypatch.setenv("HAWKER_APP", variable)
            file.write_text(FILE.replace("shop", "blog"))
            words = ["deploy", *(["-a", before] * bool(before)), "abort", *(["-a", after] * bool(after))]
            assert hawker(*words).status == 0
            assert node.calls.pop("abort_deploy")[0].params.app_name == "shop"


@pytest.mark.parametrize("words", [("--dry-run",), ("--image", "one:1"), ("--only-regions", "ams"), ("-o", "json")])
def test_an_option_of_a_deploy_before_a_word_to_one_is_refused(
    hawker: Hawker, node: FakeNode, file: Path, words: tuple[str, ...]
) -> None:
    refused = hawker("deploy", *words, "abort", "-a", "shop")
    assert refused.status == 2 and "is of `hawker deploy` alone: options of `abort` follow it" in refused.err
    assert node.calls == {}

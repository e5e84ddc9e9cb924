"""Two real nodes, one of which has a login, or an image, that the other one needs."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hawker.api.contract.image import PUT_LOGIN, LoginRequest, RegistryParams
from hawker.api.contract.machine import Machine
from hawker.errors import BadRequest, HawkerError
from tests.e2e.command_line import CommandLine
from tests.e2e.images import variant, write_docker_archive
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host
from tests.e2e.two_hosts import two_hosts
from tests.fixtures.parts import ImageParts, push
from tests.fixtures.registry import PASSWORD, USER, Registry
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

SMALL = {"guest": {"memory_mb": 64}}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """Both up, and in one cluster; what one of them leaves on the host fails the tests."""
    with two_hosts(tmp_path_factory.mktemp("fleet")) as pair:
        yield pair


@pytest.fixture
async def shops(hosts: tuple[Host, Host], request: pytest.FixtureRequest) -> AsyncIterator[tuple[Shop, Shop]]:
    """One app, as the brokers of both nodes know it."""
    first, second = (host.node for host in hosts)
    async with first.client() as one, second.client() as two:
        shop = Shop(one, request.node.name.removeprefix("test_").replace("_", "-")[:40])
        await shop.open()
        yield shop, Shop(two, shop.app)
        await shop.close()


async def at_host(shop: Shop, number: int, image: str, *later: type[HawkerError]) -> Machine:
    """At the host of that label, once the broker has heard of it; also of a login, where `later` may be raised."""
    config = {"image": image, "metadata": {"hawker_labels": f"host={number}"}, **SMALL}
    return await shop.run_somewhere(config, *later)  # nor of what was imported a moment ago


async def test_a_login_made_at_one_node_pulls_at_another(
    hosts: tuple[Host, Host], shops: tuple[Shop, Shop], private_registry: Registry, toolbox_parts: ImageParts
) -> None:
    first, second = shops
    reference = push(private_registry, "test/fleet", "v1", variant(toolbox_parts, "private"))
    with pytest.raises(BadRequest, match=r"UNAUTHORIZED.*hawker registry login"):
        await at_host(first, 1, reference)
    wrong = LoginRequest(username=USER, password="guess")
    at = RegistryParams(org_slug="tests", registry=private_registry.host)
    with pytest.raises(BadRequest, match="wrong user name or password"):
        await first.client.call(PUT_LOGIN, params=at, body=wrong)
    command = CommandLine(hosts[0].node.environment | {"HAWKER_DATA_DIR": str(hosts[0].node.data_dir)})
    words = ("--username", USER, "--password-stdin", "--org", "tests")
    done = command("registry", "login", private_registry.host, *words, stdin=PASSWORD.encode())
    assert done.status == 0, done
    machine = await at_host(second, 1, reference, BadRequest)
    assert await second.said(machine.id, "ls", "/etc/private") == "/etc/private\n"
    listed = command.say("registry", "list", "--org", "tests")
    assert private_registry.host in listed and PASSWORD not in listed
    for host in hosts:
        for file in host.node.data_dir.glob("*"):
            if file.is_file() and (content := file.read_bytes()):
                assert PASSWORD.encode() not in content, file
    assert command("registry", "logout", private_registry.host, "--org", "tests").status == 0
    other = push(private_registry, "test/fleet", "v2", variant(toolbox_parts, "later"))

    async def refused() -> bool:
        try:
            await second.destroy((await at_host(second, 1, other)).id)
        except BadRequest:
            return True
        return False

    assert await eventually(refused, WITHIN_S)
    refusal = command("machine", "run", "-a", first.app, private_registry.host + "/test/fleet:v2")
    assert "hawker registry login" in refusal.err


async def test_an_image_that_was_imported_at_one_node_runs_on_the_other_and_drains(
    hosts: tuple[Host, Host], shops: tuple[Shop, Shop], tmp_path: Path, toolbox_parts: ImageParts
) -> None:
    first, second = shops
    write_docker_archive(tmp_path / "web.tar", variant(toolbox_parts, "handed"), "local/handed:v1")
    command = CommandLine(hosts[0].node.environment | {"HAWKER_DATA_DIR": str(hosts[0].node.data_dir)})
    archive = (tmp_path / "web.tar").read_bytes()
    assert command("images", "import", "-", "--as", "local/half:v1", stdin=archive[: len(archive) // 2]).status != 0
    done = command("images", "import", "-", "--as", "local/handed:v1", stdin=archive)
    assert done.status == 0, done
    machine = await at_host(second, 1, "local/handed:v1", BadRequest)  # nobody knows it before it has heard of it
    assert machine.image_ref.digest == done.out.strip()
    assert await second.said(machine.id, "ls", "/etc/handed") == "/etc/handed\n"
    own = await first.run({"image": "local/handed:v1", **SMALL, "metadata": {"hawker_labels": "host=0"}})
    await first.destroy(own.id)
    await first.gone(own.id)
    command.say("images", "prune")
    back = await at_host(first, 0, "local/handed:v1")  # the node that lost it has it back from the other
    assert await first.said(back.id, "ls", "/etc/handed") == "/etc/handed\n"


async def test_a_file_that_was_uploaded_at_one_node_is_given_to_a_machine_on_the_other(
    hosts: tuple[Host, Host], shops: tuple[Shop, Shop], tmp_path: Path, toolbox_image: str
) -> None:
    first, _ = shops
    (tmp_path / "big").write_bytes(b"large" * 600_000)
    command = CommandLine(hosts[0].node.environment | {"HAWKER_DATA_DIR": str(hosts[0].node.data_dir)})
    words = ("-a", first.app, "--memory", "64", "-f", f"/big={tmp_path / 'big'}")

    async def runs_at(number: int) -> bool:
        done = command("run", *words, "--label", f"host={number}", "--name", f"at-{number}", toolbox_image)
        return done.status == 0 or "is taken" in done.err

    for number in (0, 1):
        await eventually(lambda number=number: runs_at(number), WITHIN_S)  # type: ignore[misc]
        found = command("exec", "-a", first.app, f"at-{number}", "ls", "-l", "/big")
        assert " 3000000 " in found.out, found
    for host in hosts:
        kept = [path for path in (host.node.data_dir / "files").rglob("*") if path.is_file()]
        assert [path.read_bytes() for path in kept] == [b"large" * 600_000]

"""The first hour of somebody who comes from docker, with what they run: PostgreSQL, Redis and nginx from Debian's
packages, by the commands that they would type.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.e2e.command_line import CommandLine
from tests.e2e.images import write_layout
from tests.e2e.running_node import RunningNode, running_node
from tests.fixtures.debian_image import debian_services
from tests.ports import free_port
from tests.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]
SERVERS = pytest.mark.long(
    reason="installs three servers from Debian's packages; nginx of test_images.py and the followed log of "
    "test_app_logs.py are the short forms"
)

_DATABASE = """\
set -e
bin=$(ls -d /usr/lib/postgresql/*/bin)
mkdir -p /data/db
chown -R postgres /data /var/run/postgresql
as() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
test -f /data/db/PG_VERSION || as $bin/initdb -k -D /data/db >/dev/null
exec setpriv --reuid=postgres --regid=postgres --init-groups $bin/postgres -D /data/db -c listen_addresses='*'
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """With an address that it keeps over restarts."""
    with running_node(tmp_path_factory.mktemp("node"), "--ephemeral", "--listen", f"127.0.0.1:{free_port()}") as node:
        yield node


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not shutil.which("debootstrap"):
        pytest.skip("needs debootstrap")
    return write_layout(tmp_path_factory.mktemp("services"), debian_services())


@pytest.fixture(scope="module")
def hawker(node: RunningNode) -> CommandLine:
    line = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    line.say("apps", "create", "shop")
    return CommandLine(line.environment | {"HAWKER_APP": "shop"})


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What starts a server, as an option of `run`."""
    file = tmp_path_factory.mktemp("script") / "database.sh"
    file.write_text(_DATABASE)
    return f"/database.sh={file}"


def serve(hawker: CommandLine, image: str, script: str, name: str, volume: str) -> None:
    words = ("--name", name, "-v", f"{volume}:/data", "--memory", "512m", "-f", script)
    hawker.say("run", *words, image, "sh", "/database.sh")
    wait_for(lambda: hawker("exec", name, *as_postgres("pg_isready")).status == 0)


def as_postgres(*words: str) -> tuple[str, ...]:
    return ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *words)


def ask(hawker: CommandLine, machine: str, sql: str) -> str:
    """The one value of an answer."""
    done = hawker("exec", "--cwd", "/", machine, *as_postgres("psql", "-v", "ON_ERROR_STOP=1", "-AtXc", sql))
    assert done.status == 0, done
    return done.out.strip()


@pytest.fixture(scope="module")
def database(hawker: CommandLine, image: str, script: str) -> str:
    """The name of a machine with a server on a volume, loaded by pgbench."""
    hawker.say("volumes", "create", "pgdata", "--size", "1", "--no-encryption")
    serve(hawker, image, script, "db", "pgdata")
    loaded = hawker("exec", "--cwd", "/", "db", *as_postgres("pgbench", "-i", "-q", "-s", "1"))
    assert loaded.status == 0, loaded
    return "db"


@SERVERS
@pytest.mark.timeout(2700)  # the first one makes the image
def test_a_shell_reads_files_and_goes_with_its_machine(hawker: CommandLine, image: str) -> None:
    done = hawker(
        "run", "--rm", "-i", image, "sh", "-c", "read name; . /etc/os-release; echo $name $ID", stdin=b"it's\n"
    )
    assert (done.status, done.out) == (0, "it's debian\n"), done
    with hawker.on_terminal("run", "--rm", "-it", image, "bash") as terminal:
        terminal.type("tty; exit 4\n")
        terminal.shows("/dev/pts/0")
        assert terminal.ends() == 4


def test_a_command_that_ends_at_once_gives_its_output_and_status(hawker: CommandLine, toolbox_image: str) -> None:
    for streams in ("-i", "-t", "-it"):
        done = hawker("run", "--rm", streams, toolbox_image, "sh", "-c", "echo said; exit 3")
        assert (done.status, done.out.split()) == (3, ["said"]) and "error" not in done.err, done


@SERVERS
def test_redis_and_nginx_are_seen(hawker: CommandLine, image: str, tmp_path: Path) -> None:
    redis = ("redis-server", "--protected-mode", "no", "--save", "")
    hawker.say("run", "--name", "cache", "-u", "redis", "--memory", "128m", image, *redis)
    hawker.say("run", "--name", "web", image, "nginx", "-g", "daemon off;")
    wait_for(lambda: hawker("exec", "cache", "redis-cli", "set", "a", "1").out == "OK\n")
    wait_for(lambda: ":6379" in hawker.say("top", "cache") and ":80" in hawker.say("top", "web"))
    (tmp_path / "index.html").write_text("hello\n")
    hawker.say("cp", str(tmp_path / "index.html"), "web:/var/www/html/")
    assert hawker.say("exec", "web", "cat", "/var/www/html/index.html") == "hello\n"
    wait_for(lambda: "Ready to accept connections" in hawker.say("logs", "-a", "shop", "-n", "50"))
    used = {each["name"]: each["stats"] for each in json.loads(hawker.say("stats", "-o", "json"))}
    assert used["cache"]["memory_limit_bytes"] == 128 << 20 and used["web"]["working_set_bytes"] > 0
    assert max(map(len, hawker.say("ps").splitlines())) <= 80
    assert hawker("machine", "destroy", "web").err.count("--force") == 1
    hawker.say("machine", "destroy", "--force", "web", "cache")


@SERVERS
def test_a_user_of_the_image_can_write_to_a_new_volume(hawker: CommandLine, image: str) -> None:
    """Its directory in the image is redis's. What is not written there is gone with the restart."""
    hawker.say("volumes", "create", "kept", "--size", "1", "--no-encryption")
    redis = ("redis-server", "--dir", "/var/lib/redis", "--save", "3600 1")
    hawker.say("run", "--name", "store", "-u", "redis", "-v", "kept:/var/lib/redis", image, *redis)
    wait_for(lambda: hawker("exec", "store", "redis-cli", "set", "a", "1").out == "OK\n")
    hawker.say("machine", "restart", "store")
    wait_for(lambda: hawker("exec", "store", "redis-cli", "get", "a").out == "1\n")
    assert hawker.say("exec", "-u", "root", "store", "stat", "-c", "%U", "/var/lib/redis") == "redis\n"
    hawker.say("machine", "destroy", "--force", "store")


@SERVERS
def test_a_database_keeps_its_rows_over_a_restart_and_nothing_beside_its_volume(
    hawker: CommandLine, database: str
) -> None:
    assert ask(hawker, database, "select count(*) from pgbench_accounts") == "100000"
    hawker.say("exec", database, "touch", "/elsewhere")
    assert "fresh at each start" in hawker.say("machine", "status", database)
    hawker.say("machine", "restart", database)
    wait_for(lambda: hawker("exec", database, *as_postgres("pg_isready")).status == 0)
    assert ask(hawker, database, "select count(*) from pgbench_accounts") == "100000"
    assert hawker("exec", database, "test", "-e", "/elsewhere").status == 1
    wait_for(lambda: ":5432" in hawker.say("top", database))


@SERVERS
def test_logs_go_on_when_the_daemon_is_killed(hawker: CommandLine, node: RunningNode, database: str) -> None:
    ask(hawker, database, "do $$ begin raise log 'said before'; end $$")
    following = hawker.begin("logs", "-f", "-n", "100", database)  # not 0: it may begin after the line
    assert following.stdout is not None and following.stderr is not None
    try:
        _until(following.stderr, b"said before")
        node.kill()
        node.start()
        ask(hawker, database, "do $$ begin raise log 'said after'; end $$")
        seen = _until(following.stderr, b"said after")
        assert b"waiting for it to come back" in seen and b"LOG:  said before" not in seen
    finally:
        following.kill()
        following.wait(90)


def _until(stream: IO[bytes], text: bytes) -> bytes:
    seen = b""
    for line in stream:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"it ended without {text!r}: {seen!r}")


@SERVERS
def test_a_load_goes_on_when_the_daemon_is_killed(hawker: CommandLine, node: RunningNode, database: str) -> None:
    """By a client inside, which no daemon is needed for."""
    load = "nohup pgbench -T 25 -c 4 -P 5 postgres >/tmp/load 2>&1 & echo begun"
    hawker.say("exec", "--cwd", "/tmp", database, *as_postgres("sh", "-c", load))
    wait_for(lambda: "progress: " in hawker.say("exec", database, "cat", "/tmp/load"))
    node.kill()
    node.start()
    wait_for(lambda: "tps = " in hawker.say("exec", database, "cat", "/tmp/load"))
    report = hawker.say("exec", database, "cat", "/tmp/load")
    assert re.search(r"number of failed transactions: 0 ", report), report
    wait_for(lambda: hawker("node", "doctor").status == 0)  # once what the boot began is over


@SERVERS
def test_a_snapshot_under_load_is_a_sound_database(hawker: CommandLine, image: str, script: str, database: str) -> None:
    load = "nohup pgbench -T 15 -c 4 postgres >/tmp/load 2>&1 & echo begun"
    hawker.say("exec", "--cwd", "/tmp", database, *as_postgres("sh", "-c", load))
    volume = next(each for each in json.loads(hawker.say("volumes", "list", "-o", "json")) if "pgdata" in str(each))
    volume_id = volume["volume"]["id"]
    hawker.say("volumes", "snapshots", "create", volume_id)
    snapshots = json.loads(hawker.say("volumes", "snapshots", "list", volume_id, "-o", "json"))
    snapshot = re.findall(r"vs_[0-9A-Za-z]+", json.dumps(snapshots))[0]
    hawker.say("volumes", "snapshots", "restore", snapshot, "--name", "pgdata2")
    serve(hawker, image, script, "db2", "pgdata2")
    assert ask(hawker, "db2", "select count(*) from pgbench_accounts") == "100000"
    ask(hawker, "db2", "create extension amcheck")
    indexes = "select count(bt_index_parent_check(c.oid, true, true)) from pg_class c join pg_am a on a.oid = c.relam"
    assert int(ask(hawker, "db2", f"{indexes} where a.amname = 'btree' and c.relkind = 'i'")) > 100
    heap = "select count(*) from verify_heapam('pgbench_accounts')"
    assert ask(hawker, "db2", heap) == "0"
    sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches)"
    assert ask(hawker, "db2", sums) == "t"

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.cli.access import Access
from hawker.cli.target import find_node
from hawker.errors import Unauthorized, Unavailable
from hawker.place import Place

_SOMEBODY = 65533


def test_a_token_is_not_shown_by_accident() -> None:
    assert "hunter2" not in repr(Access("http://x", "hunter2"))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def address(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{port_of(listener)}"


@pytest.fixture
def data_dir(tmp_path: Path, address: str) -> Path:
    (tmp_path / "address").write_text(f"{address}\n")
    (tmp_path / "token").write_text("local\n")
    return tmp_path


def found(access: Access, **environ: str | Path) -> tuple[str, str | None]:
    target = find_node(access, {name: str(value) for name, value in environ.items()})
    return target.url, target.token.reveal() if target.token else None


def test_the_local_node_is_found_by_its_files(data_dir: Path, address: str) -> None:
    assert found(Access(), HAWKER_DATA_DIR=data_dir) == (address, "local")


def test_variables_win_over_the_local_node_and_flags_over_variables(data_dir: Path) -> None:
    variables: dict[str, str | Path] = {
        "HAWKER_DATA_DIR": data_dir,
        "HAWKER_URL": "http://other",
        "HAWKER_TOKEN": "theirs",
    }
    assert found(Access(), **variables) == ("http://other", "theirs")
    assert found(Access("http://third", "mine"), **variables) == ("http://third", "mine")


def test_the_local_token_is_sent_to_no_other_address(data_dir: Path, address: str) -> None:
    assert found(Access("http://other"), HAWKER_DATA_DIR=data_dir) == ("http://other", None)
    assert found(Access(f"{address}/"), HAWKER_DATA_DIR=data_dir)[1] == "local"


def test_a_token_alone_goes_to_the_local_node(data_dir: Path, address: str) -> None:
    assert found(Access(), HAWKER_DATA_DIR=data_dir, HAWKER_TOKEN="mine") == (address, "mine")


def test_local_token_goes_nowhere_while_nobody_has_the_data_directory_and_its_address(
    data_dir: Path, listener: socket.socket, address: str
) -> None:
    listener.close()
    with pytest.raises(Unavailable, match="is not running: start it with `hawker up`"):
        found(Access(), HAWKER_DATA_DIR=data_dir)
    with Place(data_dir).held():  # in another network namespace, say
        assert found(Access(), HAWKER_DATA_DIR=data_dir) == (address, "local")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_sockets_are_found_by_their_port_whatever_they_listen_at(tmp_path: Path, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{port_of(listener)}"
        (tmp_path / "address").write_text(url)
        (tmp_path / "token").write_text("local")
        assert found(Access(), HAWKER_DATA_DIR=tmp_path) == (url, "local")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_local_token_is_not_sent_to_another_user_at_the_address_of_a_node_that_is_down(
    tmp_path: Path, host: str
) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    os.seteuid(_SOMEBODY)
    try:
        listener = socket.create_server((host, 0), family=family, dualstack_ipv6=":" in host)
    finally:
        os.seteuid(0)
    with listener:
        (tmp_path / "address").write_text(f"http://127.0.0.1:{port_of(listener)}")
        (tmp_path / "token").write_text("local")
        with pytest.raises(Unavailable, match=f"a process of user {_SOMEBODY} listens at its address"):
            found(Access(), HAWKER_DATA_DIR=tmp_path)
        assert found(Access(), HAWKER_DATA_DIR=tmp_path, HAWKER_TOKEN="mine")[1] == "mine"
        os.chown(tmp_path / "token", _SOMEBODY, -1)  # a node of theirs, which root asks
        assert found(Access(), HAWKER_DATA_DIR=tmp_path)[1] == "local"


def test_without_a_node_it_is_said_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="start a node with `hawker up`"):
        found(Access(), HAWKER_DATA_DIR=tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_another_users_token_is_a_matter_of_rights(data_dir: Path) -> None:
    (data_dir / "token").chmod(0)
    with pytest.raises(Unauthorized, match="another user's"):
        found(Access(), HAWKER_DATA_DIR=data_dir)

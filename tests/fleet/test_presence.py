"""What answers for a host whose daemon is away, and what it does not answer."""

import base64
import os
import socket
from pathlib import Path
from threading import Thread

import pytest

from hawker.auth.peer_key import presence_key
from hawker.clock import ManualClock, SystemClock
from hawker.cluster import Cluster, Keyring, write_cluster
from hawker.fleet.presence import (
    NONCE_BYTES,
    PORT_OFFSET,
    QUESTION_BYTES,
    DaemonMark,
    HostPresence,
    HostWord,
    KnownCluster,
    answer,
    question,
    read_answer,
    read_question,
    serve,
)
from hawker.ids import NodeId
from tests.ports import free_port
from tests.waiting import wait_for

KEY, OTHER = b"k" * 32, b"o" * 32
NONCE = b"n" * NONCE_BYTES
NODE = NodeId("aaaaaaaa")
ASKER = "192.0.2.7"


def test_a_question_is_read_by_who_has_its_key_among_others() -> None:
    asked = question(KEY, NONCE)
    assert len(asked) == QUESTION_BYTES
    assert read_question([OTHER, KEY], asked) == (KEY, NONCE)
    assert read_question([OTHER], asked) is None and read_question([], asked) is None


@pytest.mark.parametrize("data", [b"", b"x" * QUESTION_BYTES, question(KEY, NONCE)[:-1], question(KEY, NONCE) + b"x"])
def test_bytes_that_are_no_question_are_not_answered(data: bytes, tmp_path: Path) -> None:
    presence = HostPresence(NODE, lambda: [KEY], DaemonMark(tmp_path), SystemClock())
    assert presence.reply(data, ASKER) is None


def test_a_bit_that_is_another_is_noticed() -> None:
    asked, said = question(KEY, NONCE), answer(KEY, NONCE, HostWord(node=NODE, away_s=1.5))
    for place in range(0, QUESTION_BYTES, 7):
        changed = bytearray(asked)
        changed[place] ^= 1
        assert read_question([KEY], bytes(changed)) is None
    for place in range(len(said)):
        changed = bytearray(said)
        changed[place] ^= 1
        assert read_answer(KEY, NONCE, bytes(changed)) is None


def test_an_answer_is_to_its_own_question_and_no_longer_than_it() -> None:
    said = answer(KEY, NONCE, HostWord(node=NODE, away_s=1e9))
    assert len(said) <= QUESTION_BYTES
    assert read_answer(KEY, NONCE, said) == HostWord(node=NODE, away_s=1e9)
    assert read_answer(KEY, b"m" * NONCE_BYTES, said) is None and read_answer(OTHER, NONCE, said) is None
    assert read_answer(KEY, NONCE, b"") is None


def test_a_mark_is_held_for_as_long_as_any_process_holds_it(tmp_path: Path) -> None:
    mark = DaemonMark(tmp_path)
    assert not mark.is_held
    first, second = mark.hold(), DaemonMark(tmp_path).hold()
    assert mark.is_held
    os.close(first)
    assert mark.is_held
    os.close(second)
    assert not mark.is_held
    third = mark.hold()
    assert mark.is_held and DaemonMark(tmp_path).is_held
    os.close(third)


def test_how_long_the_daemon_is_away_is_said(tmp_path: Path) -> None:
    mark = DaemonMark(tmp_path)
    held = mark.hold()
    presence = HostPresence(NODE, lambda: [KEY], mark, SystemClock())

    def said() -> float:
        word = read_answer(KEY, NONCE, presence.reply(question(KEY, NONCE), ASKER) or b"")
        assert word is not None and word.node == NODE
        return word.away_s

    assert said() == 0.0
    os.close(held)
    first = said()
    assert 0.0 < first <= said()


def test_questions_of_the_cluster_are_answered_however_much_others_send(tmp_path: Path) -> None:
    presence = HostPresence(NODE, lambda: [KEY], DaemonMark(tmp_path), ManualClock())
    flood, again = question(OTHER, NONCE), question(KEY, NONCE)
    assert not any(presence.reply(flood, ASKER) for _ in range(1_000))
    assert presence.reply(again, ASKER)
    while presence.reply(again, "192.0.2.66"):  # a question that somebody saw, and repeats
        pass
    assert presence.reply(again, ASKER)


def test_keys_and_place_are_those_of_the_clusters_file_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    cluster = KnownCluster(file)
    assert (list(cluster.keys), cluster.place) == ([], None)
    ring = Keyring(keys={"0": base64.b64encode(KEY).decode()}, primary=0)
    write_cluster(file, Cluster(id="c" * 16, keyring=ring, advertise="192.0.2.1", peer_port=4281))
    for _ in range(2):
        assert (list(cluster.keys), cluster.place) == ([presence_key(KEY)], ("192.0.2.1", 4281))
    (tmp_path / "half").write_text("{")
    (tmp_path / "half").replace(file)  # another file: the times of two writes may be equal
    assert (list(cluster.keys), cluster.place) == ([], None)


def test_a_presence_answers_over_the_network_until_it_is_told_to_end(tmp_path: Path) -> None:
    port = free_port()
    waking, wakes = socket.socketpair()
    presence = HostPresence(NODE, lambda: [KEY], DaemonMark(tmp_path), SystemClock())
    thread = Thread(target=serve, args=(presence, lambda: ("127.0.0.1", port - PORT_OFFSET), waking))
    thread.start()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            asker.settimeout(0.2)
            asker.connect(("127.0.0.1", port))

            def answered() -> HostWord | None:
                try:
                    asker.send(question(KEY, NONCE))
                    return read_answer(KEY, NONCE, asker.recv(1000))
                except OSError:  # it does not listen yet
                    return None

            found = wait_for(answered)
            assert found is not None and found.node == NODE
    finally:
        wakes.send(b"x")
        thread.join(60)
    assert not thread.is_alive()
    waking.close()
    wakes.close()

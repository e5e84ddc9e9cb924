import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.contract.node import LogChunk
from hawker.cli.prefix import Prefix
from tests.cli.fake_node import chunk


def of(container: str, data: bytes, stream: int = 1) -> LogChunk:
    return msgspec.structs.replace(chunk(0, data, stream=stream), container=container)


def told(*chunks: LogChunk) -> bytes:
    prefix = Prefix()
    return b"".join(prefix.told(each) for each in chunks)


def test_each_line_says_whose_it_is() -> None:
    assert told(of("web", b"a\nb\n"), of("db", b"c\n")) == b"web | a\nweb | b\ndb | c\n"


def test_a_line_in_pieces_is_one_line() -> None:
    assert told(of("web", b"hal"), of("web", b"lo\n"), of("web", b"a\n")) == b"web | hallo\nweb | a\n"


def test_a_line_that_another_breaks_into_is_ended_first() -> None:
    assert told(of("web", b"hal"), of("db", b"c\n"), of("web", b"lo\n")) == b"web | hal\ndb | c\nweb | lo\n"


def test_streams_are_apart() -> None:
    assert told(of("web", b"out"), of("web", b"err", stream=2)) == b"web | outweb | err"


def test_a_machine_without_containers_is_not_touched() -> None:
    assert told(of("", b"a\nb"), of("", b"c")) == b"a\nbc"


@given(st.lists(st.tuples(st.sampled_from(["web", "db"]), st.binary(max_size=20))))
def test_nothing_is_lost(pieces: list[tuple[str, bytes]]) -> None:
    shown = told(*(of(name, data) for name, data in pieces))
    for name in ("web", "db"):
        shown = shown.replace(f"{name} | ".encode(), b"")
    assert shown.replace(b"\n", b"") == b"".join(data for _, data in pieces).replace(b"\n", b"")

import pytest

from hawker.api.codec import Message
from hawker.api.reply import LINES, HttpReply
from hawker.errors import NotFound, TooLarge

pytestmark = pytest.mark.anyio


class Sent(list[Message]):
    async def __call__(self, message: Message) -> None:
        self.append(message)

    def headers(self) -> dict[bytes, bytes]:
        return dict(self[0]["headers"])


async def test_an_answer_has_its_length_its_type_and_the_requests_id() -> None:
    sent = Sent()
    await HttpReply(sent, "01H").answer(200, b"[]", "c")
    assert sent.headers() == {
        b"content-length": b"2",
        b"content-type": b"application/json",
        b"fly-request-id": b"01H",
        b"fly-next-cursor": b"c",
    }
    assert sent[1] == {"type": "http.response.body", "body": b"[]"}


@pytest.mark.parametrize(("status", "length"), [(202, b"0"), (204, None)])
async def test_an_empty_answer_has_no_type(status: int, length: bytes | None) -> None:
    sent = Sent()
    await HttpReply(sent, "01H").answer(status, b"", None)
    assert sent.headers().get(b"content-length") == length and b"content-type" not in sent.headers()


async def test_a_problem_is_answered_with_its_status() -> None:
    sent = Sent()
    reply = HttpReply(sent, "01H")
    await reply.problem(NotFound("app not found"))
    assert reply.status == sent[0]["status"] == 404
    assert sent[1]["body"] == b'{"error":"app not found","status":"unknown"}'


async def test_a_problem_after_the_answer_began_is_not_sent() -> None:
    sent = Sent()
    reply = HttpReply(sent, "01H")
    await reply.begin(200, LINES)
    await reply.part(b"1\n")
    await reply.problem(NotFound("too late"))
    await reply.end()
    assert [message.get("body") for message in sent] == [None, b"1\n", b""]


async def test_the_last_problem_of_a_connection_closes_it() -> None:
    sent = Sent()
    reply = HttpReply(sent, "01H")
    await reply.last_problem(TooLarge("too large"))
    assert sent.headers()[b"connection"] == b"close" and sent[1]["more_body"]

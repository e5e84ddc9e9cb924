"""A request that nobody sends: its head, as a client would write it, and what it says, or where its client is, that
changes its way: a sentence each, for people. Pure.
"""

from collections.abc import Collection, Iterable, Iterator

from hawker.edge.head import IDEMPOTENT, RequestHead, parse_request, parse_response
from hawker.edge.replay import REPLAY, Replay, read_replay
from hawker.edge.routes import ServiceTarget
from hawker.edge.steering import Steering
from hawker.edge.writing import OURS, PROXY_PROTO
from hawker.ids import MachineId
from hawker.region import means
from hawker.route_question import AskedRequest, AskRoute


def head_of(asked: AskRoute) -> RequestHead:
    """The head of the asked request, as a client would write it. Raises `ProxyError`."""
    request = asked.request
    fields = [(name, value) for name, value in request.fields]
    if not any(name.lower() == "host" for name, _ in fields):
        fields.append(("host", f"[{asked.host}]" if ":" in asked.host else asked.host))
    lines = (
        f"{request.method or 'GET'} {request.target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in fields),
        "",
    )
    return parse_request("".join(f"{line}\r\n" for line in lines).encode())


def order_of(asked: AskedRequest) -> Replay:
    """The replay that the asked request has a machine order. Raises `ProxyError`."""
    answer = f"HTTP/1.1 200 OK\r\nfly-replay: {asked.replay}\r\n\r\n".encode()
    return read_replay(parse_response(answer, b"GET"), b"")


def request_notes(asked: AskedRequest, head: RequestHead) -> Iterator[str]:
    """Sentences about the request that are true whichever machine gets it."""
    if asked.method:
        if head.method in IDEMPOTENT:
            yield f"{asked.method}: goes to a second machine if the first is lost before it answers"
        else:
            yield f"{asked.method}: goes to no second machine once one has it"
    names = [name.lower() for name, _ in asked.fields]
    ours = sorted({name for name in names if name.encode() in OURS})
    if ours:
        yield f"{', '.join(ours)}: taken out, since the edge alone says it"
    underscored = sorted({name for name in names if "_" in name})
    if underscored:
        yield f"{', '.join(underscored)}: taken out, since programs read _ as -"
    if REPLAY.decode() in names:
        yield "fly-replay: changes nothing in a request; it counts in a machine's answer"
    if asked.source:
        yield f"{asked.source}: what the machine is told as fly-client-ip"


def plain_notes(asked: AskedRequest, target: ServiceTarget, speaks: str) -> Iterator[str]:
    """Sentences about a request to a port that speaks no HTTP."""
    if asked.method or asked.fields or asked.replay:
        yield f"the port speaks {speaks}: method and headers mean nothing there"
    if asked.source and not target.is_udp and PROXY_PROTO in (target.port.handlers or ()):
        yield f"{asked.source}: what the machine is told in a PROXY head"
    elif asked.source:
        yield f"{asked.source}: the machine is not told; it sees the host as the client"


def steering_notes(steering: Steering, taker: MachineId | None, regions: Collection[str]) -> Iterator[str]:
    """Sentences about the fields by which a client steers its request. `taker` is the machine that gets it; `regions`
    have machines of the app."""
    if steering.force is not None:
        yield f"fly-force-instance-id: machine {steering.force} or none"
    if steering.prefer is not None:
        yield f"fly-prefer-instance-id: machine {steering.prefer} first{_missed(steering.prefer, taker)}"
    if said := steering.regions:
        yield f"fly-force-region: machines of {', '.join(said)} or none{_unknown(said, regions)}"
    if said := steering.preferred:
        yield f"fly-prefer-region: machines of {', '.join(said)} before others{_unknown(said, regions)}"


def _missed(preferred: MachineId, taker: MachineId | None) -> str:
    if taker in (None, preferred):
        return ""
    return "; it cannot take the request now, of which fly-preferred-instance-unavailable tells the one that does"


def _unknown(words: Iterable[str], regions: Collection[str]) -> str:
    missing = [word for word in words if not any(means(word, region) for region in regions)]
    return f"; none of the app is in {', '.join(missing)}" if missing else ""

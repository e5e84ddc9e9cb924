"""HTTP/2 by libnghttp2, through cffi: one session for each connection. What a peer sends comes out as calls of
`Http2User`; what is to be sent is asked for with `take`. No I/O here.

The library parses frames and headers, keeps streams and windows, and holds messages to RFC 9113, 8. Above it are the
bounds that it lacks, or had not in every version: a peer that exceeds one gets GOAWAY with ENHANCE_YOUR_CALM.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from cffi import FFI

from hawker.edge.head import FIELDS, HEAD_BYTES, Field

MAX_STREAMS = 128
WINDOW_BYTES, CONNECTION_WINDOW_BYTES = 256 << 10, 1 << 20
MAX_CONTINUATIONS, MAX_RESETS, MAX_CONTROLS, MAX_EMPTY = 16, 200, 300, 100
WITHIN_S = 10.0
"""Seconds in which `MAX_RESETS` resets, and `MAX_CONTROLS` PING, SETTINGS and PRIORITY frames together, may come.
Clients of gRPC measure their bandwidth with up to ten PING frames a second."""
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 2, 7, 8, 11
_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS, _PING, _CONTINUATION = 0, 1, 2, 3, 4, 6, 9
_END_STREAM, _ACK = 1, 1
_DEFERRED, _CALLBACK_FAILURE, _TEMPORAL_FAILURE = -508, -902, -521
_EOF, _NO_END_STREAM = 1, 2
_NO_INDEX = 1
_SECRET = frozenset({b"authorization", b"cookie", b"set-cookie", b"proxy-authorization"})
_LIBRARIES = ("libnghttp2.so.14", "libnghttp2.so")

_kept: list[Any] = []  # what the library calls must not go
_ffi = FFI()
_ffi.cdef(
    """
    typedef struct nghttp2_session nghttp2_session;
    typedef struct nghttp2_session_callbacks nghttp2_session_callbacks;
    typedef struct nghttp2_option nghttp2_option;
    typedef struct { size_t length; int32_t stream_id; uint8_t type; uint8_t flags; uint8_t reserved; }
        nghttp2_frame_hd;
    typedef struct { nghttp2_frame_hd hd; } nghttp2_frame;
    typedef struct { uint8_t *name; uint8_t *value; size_t namelen; size_t valuelen; uint8_t flags; } nghttp2_nv;
    typedef union { int fd; void *ptr; } nghttp2_data_source;
    typedef ssize_t (*nghttp2_data_source_read_callback)(nghttp2_session *session, int32_t stream_id, uint8_t *buf,
        size_t length, uint32_t *data_flags, nghttp2_data_source *source, void *user_data);
    typedef struct { nghttp2_data_source source; nghttp2_data_source_read_callback read_callback; }
        nghttp2_data_provider;
    typedef struct { int32_t settings_id; uint32_t value; } nghttp2_settings_entry;
    typedef int (*on_frame)(nghttp2_session *session, const nghttp2_frame *frame, void *user_data);
    typedef int (*on_frame_head)(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user_data);
    typedef int (*on_header)(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t namelen,
        const uint8_t *value, size_t valuelen, uint8_t flags, void *user_data);
    typedef int (*on_data)(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t len,
        void *user_data);
    typedef int (*on_close)(nghttp2_session *session, int32_t stream_id, uint32_t error_code, void *user_data);
    int nghttp2_session_callbacks_new(nghttp2_session_callbacks **callbacks_ptr);
    void nghttp2_session_callbacks_set_on_frame_recv_callback(nghttp2_session_callbacks *cbs, on_frame cb);
    void nghttp2_session_callbacks_set_on_begin_frame_callback(nghttp2_session_callbacks *cbs, on_frame_head cb);
    void nghttp2_session_callbacks_set_on_header_callback(nghttp2_session_callbacks *cbs, on_header cb);
    void nghttp2_session_callbacks_set_on_data_chunk_recv_callback(nghttp2_session_callbacks *cbs, on_data cb);
    void nghttp2_session_callbacks_set_on_stream_close_callback(nghttp2_session_callbacks *cbs, on_close cb);
    int nghttp2_option_new(nghttp2_option **option_ptr);
    void nghttp2_option_del(nghttp2_option *option);
    void nghttp2_option_set_no_auto_window_update(nghttp2_option *option, int val);
    void nghttp2_option_set_max_outbound_ack(nghttp2_option *option, size_t val);
    void nghttp2_option_set_peer_max_concurrent_streams(nghttp2_option *option, uint32_t val);
    int nghttp2_session_server_new2(nghttp2_session **session_ptr, const nghttp2_session_callbacks *callbacks,
        void *user_data, const nghttp2_option *option);
    int nghttp2_session_client_new2(nghttp2_session **session_ptr, const nghttp2_session_callbacks *callbacks,
        void *user_data, const nghttp2_option *option);
    void nghttp2_session_del(nghttp2_session *session);
    ssize_t nghttp2_session_mem_recv(nghttp2_session *session, const uint8_t *in, size_t inlen);
    ssize_t nghttp2_session_mem_send(nghttp2_session *session, const uint8_t **data_ptr);
    int nghttp2_session_want_read(nghttp2_session *session);
    int nghttp2_session_want_write(nghttp2_session *session);
    int nghttp2_submit_settings(nghttp2_session *session, uint8_t flags, const nghttp2_settings_entry *iv, size_t niv);
    int nghttp2_session_set_local_window_size(nghttp2_session *session, uint8_t flags, int32_t stream_id,
        int32_t window_size);
    int nghttp2_submit_response(nghttp2_session *session, int32_t stream_id, const nghttp2_nv *nva, size_t nvlen,
        const nghttp2_data_provider *data_prd);
    int32_t nghttp2_submit_request(nghttp2_session *session, const void *pri_spec, const nghttp2_nv *nva, size_t nvlen,
        const nghttp2_data_provider *data_prd, void *stream_user_data);
    int32_t nghttp2_submit_headers(nghttp2_session *session, uint8_t flags, int32_t stream_id, const void *pri_spec,
        const nghttp2_nv *nva, size_t nvlen, void *stream_user_data);
    int nghttp2_submit_trailer(nghttp2_session *session, int32_t stream_id, const nghttp2_nv *nva, size_t nvlen);
    int nghttp2_submit_rst_stream(nghttp2_session *session, uint8_t flags, int32_t stream_id, uint32_t error_code);
    int nghttp2_submit_shutdown_notice(nghttp2_session *session);
    int nghttp2_submit_goaway(nghttp2_session *session, uint8_t flags, int32_t last_stream_id, uint32_t error_code,
        const uint8_t *opaque_data, size_t opaque_data_len);
    int32_t nghttp2_session_get_last_proc_stream_id(nghttp2_session *session);
    int nghttp2_session_terminate_session(nghttp2_session *session, uint32_t error_code);
    int nghttp2_session_resume_data(nghttp2_session *session, int32_t stream_id);
    int nghttp2_session_consume(nghttp2_session *session, int32_t stream_id, size_t size);
    int32_t nghttp2_session_get_stream_remote_window_size(nghttp2_session *session, int32_t stream_id);
    """
)


_NAMES_AND_VALUES, _BYTE, _FIELDS = map(_ffi.typeof, ("uint8_t[]", "uint8_t *", "nghttp2_nv[]"))
"""Types that are looked up once: a look-up by name costs more than what is made of the type."""


class Http2User(Protocol):
    """The owner of a session. The session calls it while it reads."""

    def on_head(self, stream: int, fields: list[Field], *, ended: bool) -> None:
        """Take the fields with which a message begins, with its pseudo-fields; or those of an interim one."""

    def on_trailers(self, stream: int, fields: list[Field]) -> None:
        """Take the trailers: the message is whole."""

    def on_data(self, stream: int, data: bytes) -> None: ...

    def on_end(self, stream: int) -> None:
        """Note that the message is whole, without trailers."""

    def on_closed(self, stream: int, error: int) -> None:
        """Note that the stream is closed: nothing more comes or goes; `error` is 0 where both messages were whole."""

    def on_room(self, stream: int) -> None:
        """Note that there is room again: no more than half of the bytes that may wait on the stream are waiting."""


class _Outgoing:
    """What waits to be sent on one stream."""

    __slots__ = ("data", "ended", "moves", "sent", "since", "size", "trailers", "waits")

    def __init__(self) -> None:
        self.data: deque[bytes] = deque()
        self.size = 0
        self.ended = False
        self.trailers: tuple[Field, ...] = ()
        self.waits = False  # the library asked for data, and there was none
        self.sent = False  # all of it has gone
        self.moves = True  # some of it has gone since the last look
        self.since = 0.0  # nothing of it has


class Http2Session:
    """One end of a session of HTTP/2, without its socket. `now` is a monotonic clock."""

    def __init__(self, user: Http2User, now: Callable[[], float], *, client: bool = False) -> None:
        self._user = user
        self._now = now
        self._lib = library()
        self._handle = _ffi.new_handle(self)
        self._fields: list[Field] = []  # of the header list that is coming: nothing else comes before its end
        self._size = 0  # of them
        self._began: set[int] = set()  # streams whose message has begun
        self._outgoing: dict[int, _Outgoing] = {}
        self.waiting = 0  # bytes, on all streams together
        self._moved_at = 0.0  # some of them
        self._until, self._resets, self._controls = 0.0, 0, 0
        self._continuations = self._empty = 0
        self._failed = ""
        self.settled = False  # the peer has begun, as HTTP/2 begins
        self.frames = 0  # that have begun to come
        self._place = _ffi.new("uint8_t **")
        session, option = _ffi.new("nghttp2_session **"), _ffi.new("nghttp2_option **")
        self._lib.nghttp2_option_new(option)
        self._lib.nghttp2_option_set_no_auto_window_update(option[0], 1)
        self._lib.nghttp2_option_set_max_outbound_ack(option[0], MAX_CONTROLS * 2)
        make = self._lib.nghttp2_session_client_new2 if client else self._lib.nghttp2_session_server_new2
        made = make(session, _callbacks(), self._handle, option[0])
        self._lib.nghttp2_option_del(option[0])
        if made != 0:
            raise MemoryError("no room for a session")
        self._session = _ffi.gc(session[0], self._lib.nghttp2_session_del)
        self._settle(client=client)

    def _settle(self, *, client: bool) -> None:
        """What this end says first: its bounds, and that WebSockets may come in streams (RFC 8441)."""
        said = [(4, WINDOW_BYTES), (6, HEAD_BYTES), *([(2, 0)] if client else [(3, MAX_STREAMS), (8, 1)])]
        entries = _ffi.new("nghttp2_settings_entry[]", said)
        self._lib.nghttp2_submit_settings(self._session, 0, entries, len(said))
        self._lib.nghttp2_session_set_local_window_size(self._session, 0, 0, CONNECTION_WINDOW_BYTES)

    # What comes.

    def feed(self, data: bytes) -> str:
        """Read bytes of the peer. Returns "", or why the connection is over once the bytes that `take` gives have been
        sent."""
        if not self._failed:
            read = self._lib.nghttp2_session_mem_recv(self._session, data, len(data))
            if read < 0 and not self._failed:
                self._failed = f"no HTTP/2 ({read})"
        return self._failed

    def consume(self, stream: int, size: int) -> None:
        """Note that `size` bytes of the stream have gone on: as many more may come."""
        self._lib.nghttp2_session_consume(self._session, stream, size)

    # What goes.

    def take(self, most: int) -> bytes:
        """The bytes that are to be sent now; there may be more when they are not fewer than `most`."""
        out, taken, place = [], 0, self._place
        while taken < most and (size := self._lib.nghttp2_session_mem_send(self._session, place)) > 0:
            out.append(_ffi.buffer(place[0], size)[:])
            taken += size
        return b"".join(out)

    def waiting_on(self, stream: int) -> int:
        """How many bytes of the stream have not gone."""
        out = self._outgoing.get(stream)
        return 0 if out is None else out.size

    def has_sent(self, stream: int) -> bool:
        """Whether the whole message of this end is in the bytes that `take` gave."""
        out = self._outgoing.get(stream)
        return out is None or out.sent

    @property
    def over(self) -> bool:
        lib = self._lib
        return not lib.nghttp2_session_want_read(self._session) and not lib.nghttp2_session_want_write(self._session)

    def request(self, fields: list[Field], *, ended: bool) -> int:
        """Begin a request. Returns the new stream's number; below 0 when there can be none."""
        pairs, _kept = _pairs(fields)
        stream: int = self._lib.nghttp2_submit_request(
            self._session, _ffi.NULL, pairs, len(fields), _ffi.NULL if ended else _provider(), _ffi.NULL
        )
        if stream > 0 and not ended:
            self._outgoing[stream] = _Outgoing()
        return stream

    def interim(self, stream: int, fields: list[Field]) -> None:
        pairs, _kept = _pairs(fields)
        self._lib.nghttp2_submit_headers(self._session, 0, stream, _ffi.NULL, pairs, len(fields), _ffi.NULL)

    def answer(self, stream: int, fields: list[Field], *, ended: bool) -> None:
        """Begin an answer. It sends nothing on a stream that is closed: the library would never say again that it is
        closed, and bytes sent on it would wait for ever."""
        if stream not in self._began:
            return
        pairs, _kept = _pairs(fields)
        if not ended:
            self._outgoing[stream] = _Outgoing()
        provider = _ffi.NULL if ended else _provider()
        self._lib.nghttp2_submit_response(self._session, stream, pairs, len(fields), provider)

    def send(self, stream: int, data: bytes) -> int:
        """Send data on the stream. Returns how many bytes wait to be sent on it now."""
        out = self._outgoing.get(stream)
        if out is None or out.ended:
            return 0
        out.data.append(data)
        out.size += len(data)
        self.waiting += len(data)
        self._go_on(stream, out)
        return out.size

    def untaken(self, now: float, for_s: float, *, excused: bool) -> list[int]:
        """The streams on which bytes wait and none has gone for `for_s` seconds. A stream with an open window may wait
        for others that move. To be called now and then; `excused`: the bytes that have gone before are on their way to
        the peer."""
        outgoing = self._outgoing.items()
        if excused or any(out.moves for _, out in outgoing):
            self._moved_at = now
        for _, out in outgoing:
            if excused or out.moves or not out.size:
                out.moves, out.since = False, now
        waits_for_others = now - self._moved_at < for_s
        late = [stream for stream, out in outgoing if now - out.since >= for_s]
        return [stream for stream in late if not (waits_for_others and self._has_window(stream))]

    def _has_window(self, stream: int) -> bool:
        window: int = self._lib.nghttp2_session_get_stream_remote_window_size(self._session, stream)
        return window > 0

    def finish(self, stream: int, trailers: tuple[Field, ...] = ()) -> None:
        out = self._outgoing.get(stream)
        if out is not None and not out.ended:
            out.ended, out.trailers = True, trailers
            self._go_on(stream, out)

    def reset(self, stream: int, error: int) -> None:
        self._lib.nghttp2_submit_rst_stream(self._session, 0, stream, error)

    def shut(self) -> None:
        """Let the peer begin no new streams: those that are there go on."""
        last = self._lib.nghttp2_session_get_last_proc_stream_id(self._session)
        self._lib.nghttp2_submit_goaway(self._session, 0, last, NO_ERROR, _ffi.NULL, 0)

    def _go_on(self, stream: int, out: _Outgoing) -> None:
        if out.waits:
            out.waits = False
            self._lib.nghttp2_session_resume_data(self._session, stream)

    # What the library calls.

    def begin_frame(self, kind: int, flags: int, length: int) -> int:
        """Count a frame that begins: floods are counted by the frame, whatever becomes of it."""
        self.frames += 1
        if kind == _CONTINUATION:
            self._continuations += 1
            return self._calm("CONTINUATION frames without an end") if self._continuations > MAX_CONTINUATIONS else 0
        self._continuations = 0
        if kind == _DATA:
            self._empty = self._empty + 1 if length == 0 and not flags & _END_STREAM else 0
            return self._calm("empty frames without an end") if self._empty > MAX_EMPTY else 0
        if kind == _HEADERS:
            self._fields, self._size = [], 0
            return 0
        self.settled = self.settled or kind == _SETTINGS
        if kind not in (_RST_STREAM, _PING, _SETTINGS, _PRIORITY):
            return 0
        now = self._now()
        if now >= self._until:
            self._until, self._resets, self._controls = now + WITHIN_S, 0, 0
        if kind == _RST_STREAM:
            self._resets += 1
        elif not flags & _ACK or kind == _PRIORITY:
            self._controls += 1
        if self._resets > MAX_RESETS:
            return self._calm("too many streams are reset")
        return self._calm("too many frames of control") if self._controls > MAX_CONTROLS else 0

    def take_field(self, name: bytes, value: bytes) -> int:
        self._size += len(name) + len(value) + 32
        if self._size > HEAD_BYTES + FIELDS * 32 or len(self._fields) > FIELDS + 8:
            return _TEMPORAL_FAILURE  # of this stream alone
        self._fields.append((name, value))
        return 0

    def end_frame(self, kind: int, flags: int, stream: int) -> int:
        ended = bool(flags & _END_STREAM)
        if kind == _HEADERS:
            fields, self._fields = self._fields, []
            if stream in self._began:
                self._user.on_trailers(stream, fields)
                return 0
            if not _is_interim(fields):
                self._began.add(stream)
            self._user.on_head(stream, fields, ended=ended)
        elif kind == _DATA and ended:
            self._user.on_end(stream)
        return 0

    def take_data(self, stream: int, data: bytes) -> int:
        self._user.on_data(stream, data)
        return 0

    def close_stream(self, stream: int, error: int) -> int:
        self._began.discard(stream)
        out = self._outgoing.pop(stream, None)
        self.waiting -= 0 if out is None else out.size
        self._user.on_closed(stream, error)
        return 0

    def give_data(self, stream: int, room: int, into: Any, flags: Any) -> int:
        out = self._outgoing.get(stream)
        if out is None:
            return _TEMPORAL_FAILURE
        if not out.size and not out.ended:
            out.waits = True
            return _DEFERRED
        pieces, size = [], 0
        while out.data and size < room:
            piece = out.data.popleft()
            if len(piece) > room - size:
                out.data.appendleft(piece[room - size :])
                piece = piece[: room - size]
            pieces.append(piece)
            size += len(piece)
        _ffi.memmove(into, b"".join(pieces), size)
        before, out.size, out.moves = out.size, out.size - size, True
        self.waiting -= size
        if not out.size and out.ended:
            out.sent = True
            flags[0] |= _EOF
            if out.trailers:
                flags[0] |= _NO_END_STREAM
                pairs, _kept = _pairs(out.trailers)
                self._lib.nghttp2_submit_trailer(self._session, stream, pairs, len(out.trailers))
        if before > WINDOW_BYTES // 2 >= out.size:
            self._user.on_room(stream)
        return size

    def _calm(self, why: str) -> int:
        if not self._failed:
            self._failed = why
            self._lib.nghttp2_session_terminate_session(self._session, ENHANCE_YOUR_CALM)
        return 0


def _is_interim(fields: list[Field]) -> bool:
    name, value = fields[0] if fields else (b"", b"")
    return name == b":status" and value.startswith(b"1")


def _pairs(fields: Sequence[Field]) -> tuple[Any, Any]:
    """The library's form of them, and what must live as long."""
    kept = _ffi.from_buffer(_NAMES_AND_VALUES, b"".join([part for field in fields for part in field]) or b"\0")
    base, at, made = _ffi.cast(_BYTE, kept), 0, []
    for name, value in fields:
        end = at + len(name)
        flags = _NO_INDEX if name in _SECRET else 0
        made.append((base + at, base + end, len(name), len(value), flags))
        at = end + len(value)
    return _ffi.new(_FIELDS, made), kept


@cache
def library() -> Any:
    """The library libnghttp2. Raises `OSError` where the host has none."""
    for name in _LIBRARIES:
        try:
            return _ffi.dlopen(name)
        except OSError:
            continue
    raise OSError("libnghttp2 is not on this host")


def is_there() -> bool:
    try:
        library()
    except OSError:
        return False
    return True


def _of(user: Any) -> Http2Session:
    session: Http2Session = _ffi.from_handle(user)
    return session


def _begin_frame(_: Any, head: Any, user: Any) -> int:
    return _of(user).begin_frame(head.type, head.flags, head.length)


def _take_field(_: Any, __: Any, name: Any, size: int, value: Any, value_size: int, ___: int, user: Any) -> int:
    return _of(user).take_field(_ffi.buffer(name, size)[:], _ffi.buffer(value, value_size)[:])


def _end_frame(_: Any, frame: Any, user: Any) -> int:
    head = frame.hd
    return _of(user).end_frame(head.type, head.flags, head.stream_id) if head.type <= _HEADERS else 0


def _take_data(_: Any, __: int, stream: int, data: Any, size: int, user: Any) -> int:
    return _of(user).take_data(stream, _ffi.buffer(data, size)[:])


def _close_stream(_: Any, stream: int, error: int, user: Any) -> int:
    return _of(user).close_stream(stream, error)


def _give_data(_: Any, stream: int, into: Any, room: int, flags: Any, __: Any, user: Any) -> int:
    return _of(user).give_data(stream, room, into, flags)


@cache
def _callbacks() -> Any:
    """They live as long as the process. An error in one ends its session, and no other."""
    lib, place = library(), _ffi.new("nghttp2_session_callbacks **")
    lib.nghttp2_session_callbacks_new(place)
    for what, kind, function in (
        ("on_begin_frame", "on_frame_head", _begin_frame),
        ("on_header", "on_header", _take_field),
        ("on_frame_recv", "on_frame", _end_frame),
        ("on_data_chunk_recv", "on_data", _take_data),
        ("on_stream_close", "on_close", _close_stream),
    ):
        made = _ffi.callback(kind, function, error=_CALLBACK_FAILURE)
        _kept.append(made)
        getattr(lib, f"nghttp2_session_callbacks_set_{what}_callback")(place[0], made)
    return place[0]


@cache
def _provider() -> Any:
    provider = _ffi.new("nghttp2_data_provider *")
    made = _ffi.callback("nghttp2_data_source_read_callback", _give_data, error=_CALLBACK_FAILURE)
    _kept.append(made)
    provider.read_callback = made
    return provider

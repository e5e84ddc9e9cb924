"""How a serial port, which has no connections, carries one: guest/PROTOCOL.md, "Serial ports". Pure."""

_ESCAPE = b"\xfe"
_ESCAPED = b"\xfe\x00"
_BEGIN = b"\xfe\x01"
END = b"\xfe\x02"
NONCE_BYTES = 8


def nonce_of(random: bytes) -> bytes:
    """Of `NONCE_BYTES` random ones. None of them looks like an escape."""
    assert len(random) == NONCE_BYTES
    return bytes(byte & 0x7F for byte in random)


def begin(nonce: bytes) -> bytes:
    return _BEGIN + nonce


def escape(data: bytes) -> bytes:
    return data.replace(_ESCAPE, _ESCAPED)


class Unescape:
    """Feed it what arrives after `begin`: what came before the answer to that is passed over."""

    def __init__(self, nonce: bytes) -> None:
        self._mark = begin(nonce)
        self._rest = b""
        self._begun = False
        self.over = ""  # why, once there is no more to come

    def feed(self, data: bytes) -> bytes:
        """What is said in `data`, up to where the connection is over."""
        if self.over:
            return b""
        data = self._rest + data
        if not self._begun:
            before, mark, data = data.partition(self._mark)
            if not mark:
                self._rest = before[1 - len(self._mark) :]
                return b""
            self._begun = True
        self._rest = data[-1:] if data.endswith(_ESCAPE) else b""
        return self._said(data[: len(data) - len(self._rest)])

    def _said(self, data: bytes) -> bytes:
        """`data` ends in no half an escape."""
        if data.count(_ESCAPE) == data.count(_ESCAPED):
            return data.replace(_ESCAPED, _ESCAPE)
        at = data.index(_ESCAPE)
        while data.startswith(_ESCAPED, at):
            at = data.index(_ESCAPE, at + 1)
        ended = data.startswith(END, at)
        self.over = "the machine's pilot has gone" if ended else "the pilot broke the framing of its serial port"
        return data[:at].replace(_ESCAPED, _ESCAPE)

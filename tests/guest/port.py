"""A client's end of a serial port (guest/PROTOCOL.md, "Serial ports"), used as a socket is."""

import socket

from hawker.runtime.pilot import serial_ports

NONCE = b"nonce  1"


class Port:
    """One connection on a port. Closing it leaves the port open; the pilot hears of it."""

    def __init__(self, joined: socket.socket, nonce: bytes = NONCE) -> None:
        self.joined = joined
        self._unescape = serial_ports.Unescape(nonce)
        joined.sendall(serial_ports.begin(nonce))

    def sendall(self, data: bytes) -> None:
        self.joined.sendall(serial_ports.escape(data))

    def recv(self, size: int) -> bytes:
        """Empty when the pilot has ended the connection, or the port is gone."""
        while not self._unescape.over and (data := self.joined.recv(size)):
            if said := self._unescape.feed(data):
                return said
        return b""

    def close(self) -> None:
        self.joined.sendall(serial_ports.END)

"""The words of network policies, as clients send them and as they are stored."""

from enum import StrEnum


class Direction(StrEnum):
    """The direction of traffic as the machine sees it."""

    INGRESS = "ingress"
    EGRESS = "egress"


class Transport(StrEnum):
    TCP = "tcp"
    UDP = "udp"

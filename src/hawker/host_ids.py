"""User and group ids of the host that machines, and the services for strangers, have for their own. Pure."""

IDS_EACH = 65_536
"""The number of user and group ids of the host that a machine has for its own: what images use, with nobody's 65534."""
_LAST_ID = (1 << 31) - 1
"""The last group that may ping (net.ipv4.ping_group_range), and that every program takes for a number."""


def id_bounds(text: str) -> tuple[int, int]:
    """The first and last id of a text "FIRST-LAST". Raises `ValueError` when the text is no range, or has no room for
    one machine."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        raise ValueError(f"userns_ids {text!r} is not a range of ids such as 1073741824-1879048191")
    if int(first) < IDS_EACH or int(last) > _LAST_ID or int(last) + 1 - int(first) < IDS_EACH:
        raise ValueError(f"userns_ids {text!r} must have at least {IDS_EACH} ids, from {IDS_EACH} to {_LAST_ID}")
    return int(first), int(last)


def service_users(text: str) -> tuple[int, int]:
    """The user ids of the edge, which serves strangers, and of the resolver, which serves machines: the last but one
    and the one before it of "FIRST-LAST". No machine has those."""
    _, last = id_bounds(text)
    return last - 1, last - 2

"""The cursor of a list in pages: the key of the last item shown, in base64 so that nobody leans on it. Nodes and
brokers give out the same, so a page of one can go on at another. Pure.
"""

import base64
import binascii

from hawker.errors import BadRequest


def cursor_after(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def after_of(cursor: str | None) -> str:
    """The key that the page comes after: no item has an empty one. Raises `BadRequest`."""
    if not cursor:
        return ""
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise BadRequest("cursor is not one that this API gave out") from error

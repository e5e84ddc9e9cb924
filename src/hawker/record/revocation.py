"""Revocation."""

import msgspec

from hawker.store.contract import Bucket


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is Unix seconds, `by` the name of who asked."""

    token_id: str
    at: float
    by: str
    note: str = ""


REVOKED = Bucket("revoked_tokens", Revocation)

"""What a node stores of registries: who an organization is there."""

import msgspec

from hawker.store.contract import Bucket


class LoginRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An organization's login at a registry. `sealed` is the password. One that is `gone` was given up: it is kept, so
    that a node that missed it learns of it. `realm` is a host that may have the password too, as token server. Of a
    fleet's records the newest counts; `at` is Unix seconds, `by` who made it."""

    org: str
    registry: str
    username: str
    sealed: bytes
    realm: str = ""
    at: float
    by: str
    gone: bool = False


REGISTRY_LOGINS = Bucket("registry_logins", LoginRecord)  # org/registry

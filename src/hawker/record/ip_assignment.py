"""Ip assignment."""

import msgspec

from hawker.ids import AppName
from hawker.store.contract import Bucket


class IpRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An address of an app; `type` is an `ips.IpType`. `shared`: others have it, too. `network` and `org` say where a
    private one is."""

    id: str
    ip: str
    type: str
    region: str
    service_name: str
    shared: bool
    network: str = ""
    org: str = ""
    created_at: float


class IpOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose an address is that is not shared."""

    app: AppName


IPS = Bucket("ips", IpRecord)  # app/address


IPS_TAKEN = Bucket("ips_taken", IpOwner)  # address; without those that are shared

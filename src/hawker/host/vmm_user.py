"""The user of the host that a machine's virtual machine monitor runs as: one of its own for each machine, kept nowhere.

The range begins where that of systemd's containers ends and ends before its foreign users, so it meets no user of
/etc/passwd, no subordinate ids and no DynamicUser (systemd: "Users, Groups, UIDs and GIDs"). Two machines of a node may
meet in one, one pair in some five hundred nodes of a thousand machines; what separates them then is the rest of their
jails.
"""

import hashlib

from hawker.ids import MachineId

FIRST = 0x70000000
_NUMBER = 0x0FFE0000


def user_of(machine_id: MachineId) -> int:
    """The number of the user that the machine's VMM runs as; its group has the same number."""
    digest = hashlib.blake2b(machine_id.encode(), digest_size=8, person=b"hawker vmm").digest()
    return FIRST + int.from_bytes(digest, "big") % _NUMBER

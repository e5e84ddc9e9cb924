"""The keys of encrypted volumes: random, one for each volume, sealed under the node's own key and kept in its record.
Copies of a volume have its bytes, and so its key; it stays sealed for the volume that it was made for.
"""

from hawker.clock import Clock
from hawker.errors import Fault
from hawker.ids import VolumeId
from hawker.record.volume import SealedKey
from hawker.worker.vault import Vault

KEY_BYTES = 64


class VolumeKeys:
    def __init__(self, vault: Vault, clock: Clock) -> None:
        self._vault = vault
        self._clock = clock

    def new(self, volume_id: VolumeId) -> SealedKey:
        sealed = self._vault.seal(_owner(volume_id), self._clock.token_bytes(KEY_BYTES))
        return SealedKey(volume=volume_id, sealed=sealed)

    def open(self, key: SealedKey) -> bytes:
        """Raises `Fault` when the node's own key is not the one that it was sealed under."""
        try:
            return self._vault.open(_owner(key.volume), key.sealed)
        except Fault as error:
            raise Fault(
                f"the key of volume {key.volume} cannot be opened: the node's key was replaced since the volume was "
                "made; put the file `key` of its data directory back"
            ) from error


def _owner(volume_id: VolumeId) -> str:
    return f"volume/{volume_id}"

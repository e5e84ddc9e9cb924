"""How much of an image is taken before it is refused, and the room's other settings. Sizes are bytes."""

from enum import Enum
from pathlib import Path

import msgspec

from hawker.value_object import ValueObject

MIB = 1 << 20
GIB = 1 << 30


class ImageLimits(ValueObject, frozen=True):
    """The limits of what one image may ask of the node; an image beyond any of it is refused, and the import or pull
    ends. Layer and image bytes are what unpacking would write, holes included."""

    max_manifest_bytes: int = 4 * MIB  # of one manifest or index
    max_config_bytes: int = 8 * MIB  # of the image config
    max_layers: int = 512  # layers of one image
    max_layer_bytes: int = 10 * GIB  # of one layer, unpacked
    max_image_bytes: int = 20 * GIB  # of all layers, unpacked
    max_import_bytes: int = 8 * GIB  # of an uploaded archive, as it comes
    max_files: int = 500_000  # entries; and names, of implied directories too; replaced and removed ones included
    max_path: int = 4096  # bytes of one path or link target
    max_depth: int = 256  # directories above an entry
    max_names_bytes: int = 256 * MIB  # names, links and attributes, held in memory; of an archive too
    max_ratio: int = 250  # unpacked to packed, once `ratio_free_bytes` are unpacked
    ratio_free_bytes: int = 512 * MIB  # unpacked before `max_ratio` counts, so that small files may pack well


class BlockChoice(Enum):
    """The filesystem of the block images. AUTO: EROFS where the kernel has it, else ext4; none without root, because
    owners cannot be kept."""

    AUTO = "auto"
    EROFS = "erofs"
    EXT4 = "ext4"
    NONE = "none"


class ImageSettings(ValueObject, frozen=True):
    """`allow_local` admits images from files of this host. `insecure_hosts` are registries spoken to without TLS,
    beside loopback; these and `private_hosts` may be at inside addresses. `auth_file` is in the format of Docker's
    config.json; None: no credentials but those of a pull. `parallel_downloads`, 1 or more, is for all images together.
    A partial download is dropped when it was not touched for `partial_age_s` seconds. An image of which
    `early_bytes` or more are missing is unpacked while it comes."""

    allow_local: bool = False
    insecure_hosts: frozenset[str] = frozenset()
    private_hosts: frozenset[str] = frozenset()
    auth_file: Path | None = None
    parallel_downloads: int = 4
    block: BlockChoice = BlockChoice.AUTO
    partial_age_s: float = 86_400.0
    early_bytes: int = 8 * MIB
    limits: ImageLimits = msgspec.field(default_factory=ImageLimits)

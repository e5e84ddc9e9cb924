"""Who makes the boxes of container machines on this node."""

from enum import StrEnum


class LauncherChoice(StrEnum):
    """Of new machines. Each takes up, ends and clears away machines of both."""

    HAWKER = "hawker"
    CRUN = "crun"

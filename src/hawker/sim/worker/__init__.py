"""The simulator of one worker: clients, crashes, broken disks and drivers, all from a seed."""

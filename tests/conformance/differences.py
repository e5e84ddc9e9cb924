"""The places where the official document and the wire differ (contract 1.0.1), and which of the two is served."""

from collections.abc import Mapping

DIFFERENCES: Mapping[str, tuple[str, str]] = {
    "a": ("lease create, get, refresh", "both: the envelope, with the flat fields beside it"),
    "b": ("lease release", "`status` and `data.ok`"),
    "c": ("start", "`previous_state`, `migrated`, `new_host`"),
    "d": ("stop, suspend, restart, signal, cordon, uncordon, delete", "`ok`"),
    "e": ("autostop", "a bool or a word is taken; a bool or `suspend` is answered"),
    "f": ("create app", "`name` and `app_name`, `app_role_id`, `wait`"),
    "g": ("create app's answer", "the whole app, and `created_at`"),
    "h": ("delete machine", "`force` and `kill`"),
    "i": ("create lease", "`ttl` in the body or the query; a trailing slash"),
    "j": ("signal", "a name or a number"),
    "k": ("restart", "`timeout`, `signal`, `force_stop`"),
    "l": ("secrets reads", "`min_version` and `version`"),
    "m": ("regions, placements", "the live spelling and the document's"),
    "n": ("snapshot create", "`Msg.backup`"),
    "o": ("machine fields", "`version`, `cordoned`, `containers` as well"),
    "p": ("app fields", "the wire's"),
    "q": ("MachineConfig", "the union; what is not honoured is refused by name"),
    "r": ("nonce on a machine", "only from create and update with `lease_ttl`"),
}

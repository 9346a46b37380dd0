"""What kind of file system a path lies on."""

from __future__ import annotations

import os
import re

from leafward.core.errors import ConfigurationError

MOUNTS = "/proc/mounts"
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "ceph", "glusterfs", "lustre"),
        *("gfs2", "ocfs2", "davfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone"),
        *("fuse.gcsfuse", "fuse.goofys", "fuse.davfs", "fuse.davfs2", "fuse.curlftpfs", "fuse.smbnetfs"),
    }
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def kind_of(path: str) -> str | None:
    """Return the type of the file system that holds a path, or would hold it; `None` where the system does not tell."""
    real = os.path.realpath(path)
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            kinds = {_unescaped(fields[1]): fields[2] for fields in map(str.split, mounts)}
    except OSError:
        return None
    while real not in kinds and real != "/":
        real = os.path.dirname(real)
    return kinds.get(real)


def _unescaped(name: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), name)


def refuse_network(path: str) -> None:
    """Raise when a path lies on a file system of another machine, whose locks and caches cannot be relied on."""
    kind = kind_of(path)
    if kind in _NETWORK:
        raise ConfigurationError(
            f"{path} is on a network file system ({kind}), where locks and writes of several machines do not hold: "
            "keep it on a local disk, or use a server such as postgresql://"
        )

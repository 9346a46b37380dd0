"""What the URLs of a Redis say."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple
from urllib.parse import unquote

from leafward.core.errors import ConfigurationError

Kind = Literal["single", "cluster", "sentinel"]

_KINDS: dict[str, tuple[Kind, int]] = {
    "redis": ("single", 6379),
    "rediss": ("single", 6379),
    "redis+cluster": ("cluster", 6379),
    "redis+sentinel": ("sentinel", 26379),
}
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:,/?#]+))(?::([0-9]{1,5}))?")
_LAST_PORT = 65535
_FORMS = (
    "redis://:password@host:6379/0, rediss://…, redis+cluster://:password@host1:6379,host2:6379 "
    "or redis+sentinel://:password@host1:26379,host2:26379/master"
)


class Address(NamedTuple):
    """Where a Redis is, and how to log in."""

    kind: Kind
    hosts: list[tuple[str, int]]
    username: str | None = None
    password: str | None = None
    db: int = 0
    master: str = ""
    tls: bool = False
    where: str = ""
    """The URL without the password, to be named in errors."""

    def __repr__(self) -> str:
        return f"<Address {self.where}>"


def read_url(url: str) -> Address:
    """Return what a URL says.

    Raises:
        ConfigurationError: it is not one of ours; what it says is not repeated, for it may be a password.
    """
    scheme, _, rest = str(url).partition("://")
    if scheme not in _KINDS:
        raise ConfigurationError(f"this is not the URL of a Redis: write {_FORMS}")
    kind, port = _KINDS[scheme]
    login, at, place = rest.rpartition("@")
    hosts, _, path = place.partition("/")
    found = [_HOST.fullmatch(host) for host in (hosts or "localhost").split(",")]
    if not all(found) or (kind == "single" and len(found) > 1) or "?" in rest or "#" in rest:
        raise ConfigurationError(
            f"this {scheme}:// URL cannot be read: write {_FORMS}, with % escapes in the password; "
            "for other settings give client="
        )
    addresses = [(one[1] or one[2], int(one[3] or port)) for one in found if one]
    if not all(0 < port <= _LAST_PORT for _, port in addresses):
        raise ConfigurationError(f"this {scheme}:// URL names a port that no machine has: write 1 to {_LAST_PORT}")
    username, _, password = login.partition(":")
    where = f"{scheme}://{hosts or 'localhost'}{f'/{path}' if path else ''}"
    master, db = _read_path(kind, path, where)
    user, secret = (unquote(username) or None, unquote(password) or None) if at else (None, None)
    return Address(kind, addresses, user, secret, db, master, scheme == "rediss", where)


def _read_path(kind: Kind, path: str, where: str) -> tuple[str, int]:
    master, _, number = path.partition("/") if kind == "sentinel" else ("", "", path)
    if kind == "sentinel" and not master:
        raise ConfigurationError(f"{where} does not name its master: write {where.rstrip('/')}/<master>")
    if not re.fullmatch(r"[0-9]{0,9}", number, re.ASCII):
        raise ConfigurationError(f"{where} does not name a database: that is a number, such as /0")
    if kind == "cluster" and int(number or 0):
        raise ConfigurationError(f"{where} names a database: a cluster has only number 0")
    return unquote(master), int(number or 0)

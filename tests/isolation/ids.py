"""Ids that some way of keeping them would mix up, and tenants that have them."""

from __future__ import annotations

Triple = tuple[str | None, str, str]
"""A user, an agent and a session."""

# Two that look alike to some database, file system, key or pattern.
PAIRS: dict[str, tuple[str, str]] = {
    "case": ("alice", "Alice"),
    "composed and decomposed": ("álice", "a\u0301lice"),
    "full width": ("alice", "\uff41lice"),
    "trailing space": ("a", "a "),
    "trailing dot": ("a", "a."),
    "right to left": ("alice", "\u202ealice"),
    "base64": ("a/b", "YS9i"),
    "percent-encoded": ("a/b", "a%2Fb"),
    "underscore": ("axb", "a_b"),
    "patterns": ("%", "*"),
    "prefix": ("a", "a_"),
    "braces": ("{}", "{a}"),
    "a tag": ("alice", "{alice}"),
    "a place above": ("alice", "../alice"),
    "a device": ("CON", "con"),
    "nobody": ("__anon__ ", "_anon_"),
    "a journal": ("x", "x.log"),
    "files of ours": ("index.sqlite", "shared.log.jsonl"),
    "as long": ("k" * 255, "k" * 254 + "K"),
    "as many bytes": ("🦊" * 255, "🦊" * 254 + "🐺"),
}


def square(one: str, other: str) -> list[Triple]:
    """Return tenants of which the first differs from each of the others in one place."""
    return [(one, one, one), (other, one, one), (one, other, one), (one, one, other)]


TENANTS: dict[str, list[Triple]] = {name: square(*pair) for name, pair in PAIRS.items()}
# The same when they are joined by a mark, or without a user.
TENANTS |= {
    f"joined by {mark}": [
        ("a", "x", f"b{mark}c"),
        (f"a{mark}b", "x", "c"),
        ("a", f"x{mark}b", "c"),
        (None, "a", f"b{mark}c"),
    ]
    for mark in ":/"
}
TENANTS["without a user"] = [(None, "x", "s"), ("None", "x", "s"), ("anon", "x", "s"), ("%", "x", "s")]

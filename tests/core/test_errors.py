from __future__ import annotations

import pytest

from leafward import (
    ConfigurationError,
    Conflict,
    CorruptStore,
    InvalidId,
    LeafwardError,
    MessageNotFound,
    MessageTooLarge,
    NotFound,
    OutcomeUnknown,
    SessionNotFound,
    StorageFull,
    StoreError,
)


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (SessionNotFound("s"), (NotFound, LookupError)),
        (MessageNotFound("m"), (NotFound, LookupError)),
        (Conflict("first"), ()),
        (InvalidId("user id", "", "it is empty"), (ValueError,)),
        (ConfigurationError("wrong"), (ValueError,)),
        (MessageTooLarge("m", size=10, limit=5), (ValueError,)),
        (StorageFull("x.db"), (StoreError,)),
        (OutcomeUnknown("x.db"), (StoreError,)),
        (CorruptStore("x.db", "is damaged"), (StoreError,)),
    ],
)
def test_every_error_is_ours_and_of_the_kind_the_language_knows(
    error: LeafwardError, kinds: tuple[type[Exception], ...]
) -> None:
    assert isinstance(error, LeafwardError)
    assert all(isinstance(error, kind) for kind in kinds)
    assert str(error)


def test_an_error_says_what_to_do() -> None:
    assert "free space" in str(StorageFull("x.db"))
    assert "repeat the call" in str(OutcomeUnknown("x.db"))
    assert "restore a backup" in str(CorruptStore("x.db", "is damaged"))
    assert "max_message_bytes" in str(MessageTooLarge("m", size=10, limit=5))
    assert "'s'" in str(SessionNotFound("s"))

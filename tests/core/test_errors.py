from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from leafward.core import errors
from leafward.core.errors import (
    AgentShuttingDown,
    BlockNotFound,
    BudgetExceeded,
    CompactionFailed,
    ConfigurationError,
    Conflict,
    ContextError,
    CorruptStore,
    DirectoryRemoved,
    InvalidId,
    LeafwardError,
    LeaseBusy,
    LeaseLost,
    MessageNotFound,
    MessageTooLarge,
    NotFound,
    OutcomeUnknown,
    SessionExists,
    SessionNotFound,
    StaleSession,
    StaleState,
    StateDecodeError,
    StorageFull,
    StoreError,
    ToolError,
)

CLASSES = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if found.__module__ == errors.__name__ and issubclass(found, BaseException)
]

# One example of every class: a class without one fails the tests below.
EXAMPLES: dict[type[BaseException], LeafwardError] = {
    type(example): example
    for example in (
        LeafwardError("wrong"),
        NotFound("gone"),
        SessionNotFound("chat-1"),
        MessageNotFound("m-1"),
        BlockNotFound("memory", known=["soul", "notes"]),
        Conflict("another writer was first"),
        SessionExists("chat-1"),
        LeaseLost("chat-1"),
        LeaseBusy("chat-1"),
        StaleSession("chat-1", expected=3, found=4),
        StaleState("alice", "chat-1", "agent_state", 3),
        InvalidId("user id", "", "it is empty"),
        ConfigurationError("set up wrongly"),
        ContextError("the block is read-only"),
        ToolError("n must be even: send 2 or 4"),
        AgentShuttingDown("cook"),
        BudgetExceeded("chat-1", kind="cost", per="turn", limit=1.5, used=1.75),
        MessageTooLarge("m-1", size=10, limit=5),
        CompactionFailed("chat-1", "the system prompt is too long", tokens=9000, threshold=6000),
        StateDecodeError(None, None, None, "at `role`: expected str, got int"),
        StoreError("the server is gone"),
        StorageFull("chat.db"),
        OutcomeUnknown("chat.db", unanswered=True),
        DirectoryRemoved("chats"),
        CorruptStore("chat.db", "is damaged"),
    )
}


class RateLimited(StoreError):
    """An error as a user may write it: arguments by keyword only, an attribute that no argument has, and no text."""

    def __init__(self, *, seconds: float, tried: list[str]) -> None:
        self.seconds = seconds
        self.tried = tried
        self.origin = "quota"

    def __str__(self) -> str:
        return f"try again in {self.seconds} s"


def fail(error: LeafwardError) -> None:
    raise error


def pickled(error: LeafwardError, protocol: int = pickle.DEFAULT_PROTOCOL) -> LeafwardError:
    return pickle.loads(pickle.dumps(error, protocol))


def assert_same(copied: LeafwardError, error: LeafwardError) -> None:
    assert copied is not error
    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert repr(copied) == repr(error)
    assert vars(copied) == vars(error)


def test_the_module_has_errors() -> None:
    assert len(CLASSES) >= 20


@pytest.mark.parametrize("way", [pickled, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_survives_pickling_and_copying(
    kind: type[LeafwardError], way: Callable[[LeafwardError], LeafwardError]
) -> None:
    error = EXAMPLES[kind]

    assert_same(way(error), error)
    assert_same(way(way(error)), error)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_ours_and_says_something(kind: type[LeafwardError]) -> None:
    assert issubclass(kind, LeafwardError)
    assert str(EXAMPLES[kind])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", [RateLimited(seconds=2.5, tried=["a"]), MessageTooLarge("m", size=10, limit=5)])
def test_an_error_survives_every_pickle_protocol_with_arguments_by_keyword(error: LeafwardError, protocol: int) -> None:
    assert_same(pickled(error, protocol), error)


def test_attributes_and_notes_that_were_added_later_survive() -> None:
    error = SessionNotFound("chat-1")
    error.add_note("while migrating")
    error.request_id = "r-1"  # pyright: ignore[reportAttributeAccessIssue]

    copied = pickled(error)

    assert copied.__notes__ == ["while migrating"]
    assert vars(copied)["request_id"] == "r-1"


def test_an_unpickled_error_can_be_raised_from_another() -> None:
    cause = OSError("disk")

    with pytest.raises(StorageFull, match="no space left") as raised:
        raise pickled(StorageFull("chat.db")) from cause

    assert raised.value.__cause__ is cause


def test_a_deep_copy_shares_nothing_that_can_change() -> None:
    error = RateLimited(seconds=1, tried=["a"])

    copied = copy.deepcopy(error)
    error.tried.append("b")

    assert copied.tried == ["a"]


def test_errors_of_a_process_pool_arrive_unchanged() -> None:
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        for error in (*EXAMPLES.values(), RateLimited(seconds=1, tried=["a"])):
            arrived = pool.submit(fail, error).exception()

            assert isinstance(arrived, LeafwardError)
            assert_same(arrived, error)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (NotFound, LookupError),
        (InvalidId, ValueError),
        (ConfigurationError, ValueError),
        (ContextError, ValueError),
        (MessageTooLarge, ValueError),
    ],
)
def test_errors_are_of_the_kind_the_language_knows(kind: type[LeafwardError], builtin: type[Exception]) -> None:
    assert issubclass(kind, builtin)


@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        (SessionNotFound, NotFound),
        (MessageNotFound, NotFound),
        (BlockNotFound, NotFound),
        (SessionExists, Conflict),
        (StaleSession, Conflict),
        (StaleState, Conflict),
        (LeaseLost, Conflict),
        (LeaseBusy, Conflict),
        (StorageFull, StoreError),
        (OutcomeUnknown, StoreError),
        (CorruptStore, StoreError),
    ],
)
def test_errors_stand_below_their_kind(kind: type[LeafwardError], parent: type[LeafwardError]) -> None:
    assert issubclass(kind, parent)


def test_an_error_says_what_to_do() -> None:
    assert "free space" in str(StorageFull("x.db"))
    assert "repeat the call" in str(OutcomeUnknown("x.db"))
    assert "restore a backup" in str(CorruptStore("x.db", "is damaged"))
    assert "max_message_bytes" in str(MessageTooLarge("m", size=10, limit=5))
    assert "state 'plan' is 10 bytes" in str(MessageTooLarge("plan", size=10, limit=5, what="state"))
    assert "at version 4, expected 3" in str(StaleSession("s", expected=3, found=4))
    assert "'s'" in str(SessionNotFound("s"))

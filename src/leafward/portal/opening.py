"""`blocking`: from a URL to a store that is used without `await`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from leafward.portal.loop import LoopThread
from leafward.portal.portal import Portal
from leafward.portal.store import BlockingStore
from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, Store
from leafward.stores.opening import open_store
from leafward.stores.urls import without_secrets


def blocking(
    url: str,
    *,
    durability: Literal["power", "process"] = "power",
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    table_prefix: str | None = None,
    key_prefix: str | None = None,
    client: object = None,
    options: Mapping[str, Any] | None = None,
) -> BlockingStore:
    """Open the store a URL names for scripts and notebooks: `with leafward.blocking("sqlite:///chat.db") as store`.

    The keywords are those of `open_store`. What the store and all that is reached from it offer is called without
    `await`: each call waits until it is done, from any thread, also where an event loop is running. An async iterator
    is a plain one. Without `with`, call `close()`.

    Raises:
        ConfigurationError: an unknown scheme or option.
    """
    opening = open_store(
        url,
        durability=durability,
        max_message_bytes=max_message_bytes,
        table_prefix=table_prefix,
        key_prefix=key_prefix,
        client=client,
        options=options,
    )
    thread = LoopThread(f"the blocking store {without_secrets(url)}")

    opened: list[Store] = []

    async def open_it() -> None:
        opened.append(await opening)

    async def close_it() -> None:
        for store in opened:
            await store.close()

    try:
        thread.run(open_it)
    except BaseException:
        # Interrupted while it was being opened, it may be open.
        thread.close(close_it)
        raise
    return cast(BlockingStore, Portal(thread, opened[0]).mirror(opened[0]))

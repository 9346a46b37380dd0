"""Another process that appends: `python -m tests.stores.server_child URL PREFIX SESSION NAME COUNT`.

It waits for a line before it opens the store, and for another before it appends its messages one after the other,
saying each time that it waits.
"""

from __future__ import annotations

import asyncio
import sys

from leafward import Session, open_store, user


def wait() -> None:
    print("waiting", flush=True)
    sys.stdin.readline()


async def main(url: str, prefix: str, session_id: str, name: str, count: str) -> None:
    wait()
    async with open_store(url, table_prefix=prefix) as store:
        wait()
        session = Session(store, session_id)
        for n in range(int(count)):
            await session.append_message(user(f"{name} {n}", id=f"{name} {n}"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Appends to one session of a Redis store by several tasks: url, prefix, name, tasks, times, others."""

from __future__ import annotations

import asyncio
import sys

from leafward import Session, open_store, user


async def main(url: str, prefix: str, name: str, tasks: int, times: int, others: list[str]) -> None:
    async with open_store(url, key_prefix=prefix) as store:
        session = Session(store, "s")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        async def append(task: int) -> None:
            for n in range(times):
                await session.append_message(user("text", id=f"{name}.{task}.{n}"))
                if n == 0:
                    await meet(session, others)

        await asyncio.gather(*map(append, range(tasks)))


async def meet(session: Session, others: list[str]) -> None:
    """Return when every other process has written: on a busy machine one may begin when this one would have ended."""
    missing = set(others)
    async for change in session.subscribe(since=0):
        missing -= {message_id.split(".")[0] for message_id in change.message_ids}
        if not missing:
            return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6:]))

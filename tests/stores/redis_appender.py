"""Appends to one session of a Redis store by several tasks: url, prefix, name, tasks, times."""

from __future__ import annotations

import asyncio
import sys

from leafward import Session, open_store, user


async def main(url: str, prefix: str, name: str, tasks: int, times: int) -> None:
    async with open_store(url, key_prefix=prefix) as store:
        session = Session(store, "s")

        async def append(task: int, start: int, stop: int) -> None:
            for n in range(start, stop):
                await session.append_message(user("text", id=f"{name}.{task}.{n}"))

        # Whatever is slow at the start, as imports and connections, is over when all go on.
        await asyncio.gather(*(append(task, 0, 1) for task in range(tasks)))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(append(task, 1, times) for task in range(tasks)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))

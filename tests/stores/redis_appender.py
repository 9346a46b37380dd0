"""A process that appends to one session of a Redis store from several tasks: url, prefix, name, tasks, times."""

from __future__ import annotations

import asyncio
import sys

from leafward import Session, open_store, user


async def main(url: str, prefix: str, name: str, tasks: int, times: int) -> None:
    async with open_store(url, key_prefix=prefix) as store:
        session = Session(store, "s")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        async def append(task: int) -> None:
            for n in range(times):
                await session.append_message(user("text", id=f"{name}.{task}.{n}"))

        await asyncio.gather(*map(append, range(tasks)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))

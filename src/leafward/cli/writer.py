"""`python -m leafward.cli.writer URL SESSION AGENT`: store a conversation without end, until killed.

Each stored message is acknowledged on standard output by its id, on a line of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count

from leafward import LeafwardError, Session, open_store
from leafward.cli.story import message


async def write_until_killed(url: str, session_id: str, agent_id: str) -> None:
    async with open_store(url) as store:
        session = Session(store, session_id, agent_id=agent_id)
        for number in count(1):
            stored = await session.append_message(message(number))
            # One small write is in the kernel when it returns: no kill can take an acknowledgement back.
            os.write(1, f"{stored.id}\n".encode())


def main() -> None:
    try:
        asyncio.run(write_until_killed(*sys.argv[1:]))
    except LeafwardError as error:
        sys.exit(str(error))
    except BrokenPipeError:
        sys.exit("whoever started this writer is gone")


if __name__ == "__main__":
    main()

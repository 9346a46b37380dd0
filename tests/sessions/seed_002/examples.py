"""What the examples of seed 002 are about: a few messages, and a model that sums up."""

from __future__ import annotations

from leafward import Message, user


def said(count: int, *, start: int = 1) -> list[Message]:
    return [user(f"message {n}", id=f"msg-{n}") for n in range(start, start + count)]


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


async def soul() -> str:
    return "You are a helpful assistant."


class Summariser:
    """A model that sums up, and keeps what it was asked."""

    def __init__(self, *, fails: bool = False) -> None:
        self.prompts: list[str] = []
        self._fails = fails

    async def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if self._fails:
            raise TimeoutError("the model did not answer")
        return f"summary {len(self.prompts)}"

"""How a session counts the tokens of its messages."""

from __future__ import annotations

from leafward.core.message import Message
from leafward.core.tokens import checked_count, count_tokens
from leafward.sessions.setup import Setup


class SessionCounter:
    """Counts a message with the session's own counter; when that fails, the estimate is taken and the error kept."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._failures: list[Exception] = []

    def __call__(self, message: Message) -> int:
        counter = self._setup.token_counter
        if counter is None:
            return count_tokens(message)
        try:
            return checked_count(counter, message)
        except Exception as error:  # noqa: BLE001  (a message is not lost for a counter that fails)
            self._failures.append(error)
            return count_tokens(message)

    def take_failures(self) -> list[Exception]:
        """Return what the counter raised since this was last asked."""
        taken, self._failures = self._failures, []
        return taken

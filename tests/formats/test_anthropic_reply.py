"""A reply of the SDK goes back to the API."""

from __future__ import annotations

from anthropic.types import Message as Reply

from leafward import user
from leafward.formats import from_anthropic, to_anthropic


def test_a_reply_of_the_sdk_can_be_sent_back_as_it_is() -> None:
    text = {"type": "text", "text": "hi"}
    about = {"id": "msg_1", "type": "message", "model": "m", "stop_reason": "end_turn", "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    reply = Reply.model_validate({**about, "role": "assistant", "content": [text], "usage": usage})

    payload = to_anthropic([user("q"), *from_anthropic([reply])])

    # The API answers "extra inputs are not permitted" to anything else.
    assert payload["messages"][1].keys() == {"role", "content"}

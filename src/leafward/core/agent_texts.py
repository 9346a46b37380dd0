"""The JSON of messages as AgentScope's `Msg`: made once, and kept with the message until that is changed.

A state is saved again and again with nearly the same messages. Most are written in the same way wherever they stand; of
one that came from Java, the time of the message above and the ids of all above are looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

from leafward.core.agent_message_writer import (
    Checked,
    MsgWriter,
    as_it_stands,
    check_message,
    excess_of,
    is_sound,
)
from leafward.core.agent_messages import AT, CONTINUES, Fields
from leafward.core.json import encode, encode_text
from leafward.core.message import Message, keep_with, kept_of_unlent, kept_with
from leafward.core.pretty import pretty, with_escapes
from leafward.core.times import local_zone


class Setting:
    """A layout and a zone of local times, in which a message is written. For each there is one object."""

    __slots__ = ("_zone",)
    _present: ClassVar[dict[bool, Setting]] = {}

    def __init__(self, zone: object) -> None:
        self._zone = zone

    @classmethod
    def of(cls, *, of_1x: bool) -> Setting:
        found, zone = cls._present.get(of_1x), local_zone()
        if found is None or found._zone is not zone:
            found = cls._present[of_1x] = cls(zone)
        return found


class MsgText:
    """The texts of the `Msg` objects that a message is written as, nearly always one."""

    __slots__ = ("_laid_out", "_sizes", "before", "certain", "compact", "setting", "spelled")

    def __init__(self, texts: Sequence[str], setting: Setting, before: int | None) -> None:
        self.compact = texts[0] if len(texts) == 1 else ",".join(texts)
        """The texts as `to_json` has them, with commas between."""
        self.spelled = with_escapes(self.compact)
        """The same as stores have it: with escapes as Java spells them."""
        self.setting = setting
        self.before = before
        """The time of the message above, if the texts hold only below one of this time and none with the same id."""
        self.certain = setting if before is None else None
        """Where the texts hold whatever is above."""
        self._sizes = None if len(texts) == 1 else tuple(map(len, texts))
        self._laid_out: str | None = None

    @property
    def laid_out(self) -> str:
        """The same as files have it: as Java lays it out in the context of a state."""
        if self._laid_out is None:
            self._laid_out = pretty(self.compact, depth=1)
        return self._laid_out

    def each(self) -> list[str]:
        """Return the texts one by one, with escapes as Java spells them."""
        if self._sizes is None:
            return [self.spelled]
        found: list[str] = []
        start = 0
        for size in self._sizes:
            # No escape changes its length.
            found.append(self.spelled[start : start + size])
            start += size + 1
        return found


class StateText(NamedTuple):
    """The JSON of a state in its parts, to be joined in the form that is needed."""

    head: str
    """All before its messages."""
    messages: Sequence[MsgText]
    tail: str

    def compact(self) -> str:
        return self._joined([one.compact for one in self.messages])

    def spelled(self) -> str:
        """Return it with escapes as Java spells them."""
        around = self._replace(head=with_escapes(self.head), tail=with_escapes(self.tail))
        return around._joined([one.spelled for one in self.messages])

    def laid_out(self) -> str:
        """Return it as Java lays it out in files."""
        if not self.messages:
            return pretty(self.head + self.tail)
        head = pretty(self.head)
        tail = pretty(f"{self.head}0{self.tail}")[len(f"{head}0") :]
        return "".join((head, ", ".join([one.laid_out for one in self.messages]), tail))

    def _joined(self, texts: list[str]) -> str:
        if not texts:
            return self.head + self.tail
        # So that what is long is copied once.
        texts[0] = self.head + texts[0]
        texts[-1] += self.tail
        return ",".join(texts)


def write_texts(messages: Sequence[Message | Mapping[str, Any]], *, of_1x: bool = False) -> list[MsgText]:
    """Return what `write_messages` does, as texts; those of messages that are unchanged are not made again.

    Raises:
        ValueError: as `write_messages`.
    """
    setting = Setting.of(of_1x=of_1x)
    found = _kept_with_each(messages)
    unsure = [index for index, text in enumerate(found) if text is None or text.certain is not setting]
    if unsure:
        _write(messages, found, unsure, setting, of_1x)
    return cast(list[MsgText], found)


def _kept_with_each(messages: Sequence[object]) -> list[MsgText | None]:
    """Return what is kept with messages of which others have nothing, and `None` for all others."""
    try:
        return list(map(kept_of_unlent, messages))
    except AttributeError:
        # Not all of them are messages.
        return [kept_of_unlent(message) if isinstance(message, Message) else None for message in messages]


def _write(
    messages: Sequence[Message | Mapping[str, Any]],
    found: list[MsgText | None],
    unsure: Sequence[int],
    setting: Setting,
    of_1x: bool,
) -> None:
    """Put the texts of some messages in their places, unless those that are there hold."""
    sound = cast(list[Message], list(messages))
    checked: dict[int, Checked] = {}
    for index in unsure:
        message = messages[index]
        text = found[index] = cast(MsgText | None, kept_with(message)) if isinstance(message, Message) else None
        if text is None or text.setting is not setting:
            checked[index] = check_message(message, index)
            sound[index] = checked[index].message
    writer = MsgWriter(sound, of_1x=of_1x)
    for index in unsure:
        text = found[index]
        if index not in checked and text is not None and writer.holds(index, text.before):
            continue
        message = messages[index]
        one = checked.get(index) or check_message(message, index)
        written = writer.write(index, one)
        text = found[index] = MsgText([encode_text(msg) for msg in written.msgs], setting, written.before)
        if written.is_own and isinstance(message, Message):
            keep_with(message, text, one.json)


class KeepsTexts:
    """Keeps with each message that was read the text it was read from, where that is what is written of it."""

    def __init__(self) -> None:
        self._setting = Setting.of(of_1x=False)

    def __call__(self, message: Message, given: dict[str, Any], found: Fields, before: int) -> None:
        one = check_message(message, 0)
        msg = as_it_stands(one.message)
        text = encode(msg)
        # It was just read from this: what would be found out by reading it again is known.
        if (
            text == encode(given)
            and found == (message.id, message.role, message.at, one.message.body)
            and CONTINUES not in given
            and is_sound(msg, of_1x=False)
            and (one.is_short or excess_of([msg]) is None)
        ):
            made = MsgText([text.decode()], self._setting, None if AT in given else before)
            keep_with(message, made, one.json)

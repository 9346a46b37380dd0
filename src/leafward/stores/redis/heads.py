"""The heads of sessions, in keys beside their journals."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from leafward.core.attached_state import digest, read_states
from leafward.core.errors import LeaseLost, StaleSession
from leafward.core.ids import Scope
from leafward.core.json import encode_text
from leafward.core.lanes import POSITION_BITS, on_path, up_to
from leafward.stores.contracts import NO_HEAD, Head
from leafward.stores.journal.open_lines import OpenLine, Part
from leafward.stores.leases import Fence, Slot
from leafward.stores.redis.calls import Calls
from leafward.stores.redis.head_scripts import DROP, HEAD, KEEP, STAGE, STEP
from leafward.stores.redis.keys import Keys
from leafward.stores.replicated.heads import HeadChange, KeptHead
from leafward.stores.replicated.journals import Journal, KeepsHeads, Mark
from leafward.stores.replicated.steps import NotStepped, Step, Stepped

AT_ONCE = 2000
"""How many ids go into one call; a server is busy with them for about a millisecond."""
STAGED_MS = 60_000
"""After how long ids go that were not gathered to the end."""
FORMAT = "1"
"""The number of the form in which a head is kept; the scripts use no other."""
DIGEST = 32
"""Characters before the text of a state, by which it is compared."""

_pack = msgspec.msgpack.Encoder().encode


class RedisHeads(KeepsHeads):
    """Reads heads, and appends by them."""

    _calls: Calls
    _keys: Keys
    _writer: bytes

    async def step(self, journal: Journal, step: Step, fence: Fence | None) -> Stepped | NotStepped:
        session_id = journal.session_id or ""
        slot = Slot(journal.owner.user_id, session_id) if fence is None else fence.slot
        nonce = os.urandom(8).hex()
        keys = [
            *(*self._keys.lease(slot)[:1], self._keys.turn(journal), self._keys.answer(slot.user_id, nonce)),
            *(*self._keys.journal(journal), *self._keys.head(journal), *self._keys.listing(journal.owner)),
        ]
        token = b"" if fence is None else fence.token
        args: list[bytes | int] = [nonce.encode(), token, self._writer, session_id.encode(), _packed_step(step)]
        # What a repeated call did before, its answer tells: there is no doubt.
        code, *found = (await self._calls.change(STEP, keys, args)).value
        if code == 1:
            version, window, prompt, counted, leaf, *written = found
            return Stepped(
                version=int(version),
                window=_number(window),
                prompt=_number(prompt),
                leaf_id=_text(leaf) or None,
                written=[number - 1 for number in written],
                counted=counted == 1,
            )
        if code == -1:
            raise LeaseLost(slot.session_id)
        if code == 3:
            raise StaleSession(session_id, expected=step.expected_version or 0, found=int(found[0]))
        return NotStepped(is_new=code == 4, another=code == 2)

    async def head(self, scope: Scope, names: Sequence[str], ids: Sequence[str]) -> Head | None:
        journal = Journal(scope.owner, scope.session_id)
        names, ids = list(dict.fromkeys(names)), list(dict.fromkeys(ids))
        keys = [self._keys.journal(journal)[1], *self._keys.head(journal)]
        args = [len(names), *(one.encode() for one in names), *(one.encode() for one in ids)]
        code, *found = await self._calls.ask(HEAD, keys, args)
        if code != 1:
            return NO_HEAD if code == 4 else None
        version, leaf, following, path, states, places = found
        texts = {name: _text(text)[DIGEST:] for name, text in zip(names, states, strict=True) if text}
        ranges = [(_place(low), _place(high)) for low, _, high in (one.partition("-") for one in _text(path).split())]
        ranges.append(up_to(_place(_text(following))))
        known = {id: on_path(ranges, _place(_text(at))) for id, at in zip(ids, places, strict=True) if at}
        return Head(int(version), _text(leaf) or None, read_states(texts), known)

    async def keep(
        self, journal: Journal, mark: Mark, head: KeptHead, ids: Sequence[tuple[str, int]], used: Sequence[str]
    ) -> None:
        staged = self._keys.staged(journal, os.urandom(8).hex())
        await self._stage(staged[0], ((id, _written_place(place)) for id, place in ids))
        await self._stage(staged[1], ((name, "") for name in used))
        keys = [self._keys.journal(journal)[1], *self._keys.head(journal), *staged]
        fields = [*_fields(head), *_states(head.states.items())]
        await self._calls.change(KEEP, keys, [written_mark(mark), _pack(fields), len(ids), len(used)])

    async def drop(self, journal: Journal) -> None:
        await self._calls.change(DROP, self._keys.head(journal), [])

    async def _stage(self, key: bytes, pairs: Iterable[tuple[str, str]]) -> None:
        left = iter(pairs)
        while some := list(islice(left, AT_ONCE)):
            await self._calls.change(STAGE, [key], [_pack(_flat(some)), STAGED_MS])


def packed_change(change: HeadChange | None) -> bytes:
    """Return what a commit does to a head; nothing when that is not known, or too large to be kept."""
    if change is None or not change.head.is_small:
        return b""
    whole = 2 if change.is_whole else 1 if change.has_all_states else 0
    return _pack(
        [
            whole,
            1 if change.emptied else 0,
            [*_fields(change.head), *_states((name, text) for name, text in change.states.items() if text is not None)],
            [f"state:{name}" for name, text in change.states.items() if text is None],
            _flat((id, _written_place(place)) for id, place in change.added),
            list(change.removed),
            _flat((name, "") for name in change.used),
        ]
    )


def written_mark(mark: Mark) -> bytes:
    """Return a mark as its key has it, without the name of the commit."""
    return b"%b:%d:%08x" % (mark.incarnation.encode(), mark.length, mark.crc)


def _fields(head: KeptHead) -> list[str]:
    return _flat(
        [
            ("format", FORMAT),
            ("version", str(head.version)),
            ("leaf", head.leaf_id or ""),
            ("line", "" if head.line_id is None else encode_text(head.line_id)),
            ("window", "" if head.window is None else str(head.window)),
            ("prompt", "" if head.prompt is None else str(head.prompt)),
            ("next", _written_place(head.next)),
            ("path", " ".join(f"{_written_place(low)}-{_written_place(high)}" for low, high in head.path)),
        ]
    )


def _states(states: Iterable[tuple[str, str]]) -> list[str]:
    return _flat((f"state:{name}", f"{digest(text)}{text}") for name, text in states)


def _packed_step(step: Step) -> bytes:
    usage = step.usage
    used: list[Any] = []
    if usage is not None and step.usage_line is not None:
        used = [usage.usage_id or "", usage.input_tokens, usage.output_tokens, float(usage.cost)]
        used.append(_line(step.usage_line))
    return _pack(
        [
            str(step.at),
            step.updated_at.decode(),
            step.parent if isinstance(step.parent, str) else "",
            "" if step.expected_version is None else str(step.expected_version),
            1 if step.needs_window else 0,
            step.ids,
            step.tokens,
            [_line(one) for one in step.lines],
            "" if step.last_line_id is None else encode_text(step.last_line_id),
            [[one.state.name, one.digest or "", one.state.text or "", _line(one.line)] for one in step.states],
            used,
        ]
    )


def _line(line: OpenLine) -> list[Any]:
    return [_part(line.first), line.gap.value, _part(line.last), 1 if line.has_payload else 0]


def _part(part: Part) -> list[Any]:
    # Redis unpacks no bytes, only text.
    return [part.text.decode(), part.own, part.factor]


def _written_place(place: int) -> str:
    """Return a place in two numbers, each small enough for Lua."""
    return f"{place >> POSITION_BITS}.{place & (1 << POSITION_BITS) - 1}"


def _place(written: str) -> int:
    lane, _, position = written.partition(".")
    return (int(lane) << POSITION_BITS) + int(position)


def _flat(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [one for pair in pairs for one in pair]


def _number(stored: Any) -> int | None:
    return int(stored) if stored else None


def _text(value: Any) -> str:
    # A client that was given may decode what it gets.
    return value if isinstance(value, str) else value.decode()

"""Typed state in rows of AgentScope's shape, as operations.

A value is a row with its version; a list is a row for each item, and one behind its name and `:_hash` that says it is
a list. Java keeps a hash of its own making there, and writes a list anew when it finds another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from leafward.core.errors import OutcomeUnknown, StaleState
from leafward.stores.leases import Fence, Slot
from leafward.stores.sql import state_statements as sql
from leafward.stores.sql.operations import Many, Operation, Statement
from leafward.stores.sql.state_statements import Counted
from leafward.stores.states import row_names as names
from leafward.stores.states.row_names import HASH, IDS
from leafward.stores.states.seen_values import Row, Seen, SeenValues, Summed, note_of, stored_version
from leafward.stores.states.table import (
    EMPTY,
    FILLED,
    OF_SANDBOXES,
    Layout,
    common_items,
    holds_list,
    holds_value,
)


class _Held(NamedTuple):
    """Where a name is kept, and what."""

    place: str
    key: str
    rows: list[Row]
    """A value, or items of a list."""
    mark: str | None
    """What says that it is a list."""

    @property
    def is_list(self) -> bool:
        # A value that Java saved over a list has a version, and leaves the rest of the list where it was.
        return self.mark is not None and not (self.rows and self.rows[0].version > 0)


class Found(NamedTuple):
    """A value, and whether it is where the slot is written."""

    row: Row
    is_own: bool


class StateRows:
    """The operations on one table.

    One that Java made may fold case and accents (`folds`): there, rows are taken for a slot's only if their names are
    the same to the letter, and what comes second to a name that the table takes for the same gets a name of our own.
    `seen` is for a table that Java may write to; `keeps_texts` says whether it returns a text as it was saved.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        folds: bool = False,
        columns: Counted = Counted.VERSIONS,
        seen: SeenValues | None = None,
        keeps_texts: bool = True,
    ) -> None:
        self._layout: Layout = layout
        self._folds = folds
        self._columns = columns
        self._seen = seen
        self._keeps_texts = keeps_texts

    # Names.

    def _homes(self, slot: Slot) -> list[str]:
        """Return the names under which a slot may be written, the preferred one first."""
        plain = names.plain_name(slot, self._layout)
        own = names.own_name(slot)
        if plain is None:
            return [own]
        return [plain, own] if self._folds or names.looks_ours(plain) else [plain]

    def _places(self, slot: Slot) -> list[str]:
        """Return the names under which a slot may be found: also that of 1.x, if it cannot be a user's in 2.x."""
        homes = self._homes(slot)
        if self._layout == "2.x" and slot.user_id is None and ":" not in slot.session_id:
            older = names.plain_name(slot, "1.x")
            return [*homes, older] if older is not None else homes
        return homes

    def _keys(self, name: str) -> list[str]:
        plain = names.plain_key(name)
        if plain is None:
            return [names.own_key(name)]
        return [plain, names.own_key(name)] if self._folds else [plain]

    # Looking.

    def _find(self, places: Sequence[str], name: str, end: str, *, texts: bool = True) -> Operation[_Held | None]:
        """Return what a name holds in the first of these slots that holds anything of the name."""
        keys = self._keys(name)
        found = yield from self._select(places, keys, end, texts=texts)
        return _first(found, places, keys)

    def _select(
        self, places: Sequence[str], keys: Sequence[str], end: str, *, texts: bool = True
    ) -> Operation[dict[tuple[str, str], list[Row]]]:
        """Return the rows of some names, and of what marks them as lists."""
        wanted = [*keys, *(key + HASH for key in keys)]
        found: dict[tuple[str, str], list[Row]] = {}
        statement = sql.select_rows(self._columns, len(places), len(wanted), end, texts=texts)
        for place, key, *kept in (yield statement, (*places, *wanted)):
            found.setdefault((place, key), []).append(Row(*kept))
        return found

    def get(self, slot: Slot, name: str, others: Sequence[str] = ()) -> Operation[tuple[Found | None, bool]]:
        """Return a value, and whether any of some other names holds anything."""
        places, keys = self._places(slot), self._keys(name)
        further = [key for other in others for key in self._keys(other)]
        found = yield from self._select(places, [*keys, *further], sql.FIRST)
        has_others = _first(found, places, further) is not None
        held = _first(found, places, keys)
        if held is None:
            return None, has_others
        if held.is_list:
            raise holds_list(slot, name)
        return Found(held.rows[0], held.place in self._homes(slot)), has_others

    async def version(self, slot: Slot, name: str, found: Found) -> int:
        """Return the version of what `get` found."""
        if not found.is_own:
            # What 1.x left has no version that a save would go on from.
            return 0
        if self._seen is None:
            return stored_version(found.row)
        return self._seen.version((slot, name), found.row, (await Summed(found.row.text).summed()).checksum)

    def _version(self, slot: Slot, name: str, row: Row) -> int:
        return stored_version(row) if self._seen is None else self._seen.version((slot, name), row)

    def get_list(self, slot: Slot, name: str) -> Operation[Sequence[str | bytes]]:
        held = yield from self._find(self._places(slot), name, sql.ORDERED)
        if held is None:
            return []
        # Without a hash, which somebody may have removed, a single row of no version may be a list of one.
        if not held.is_list and held.rows[0].version > 0:
            raise holds_value(slot, name)
        return [row.text for row in held.rows]

    def exists(self, slot: Slot) -> Operation[bool]:
        for place in self._places(slot):
            if place in (yield from self._spelled(sql.HAS, (place, IDS))):
                return True
        return False

    def names(self, slot: Slot) -> Operation[dict[str, bool]]:
        found: dict[str, bool] = {}
        for home in self._homes(slot):
            exactly, given = (sql.EXACTLY, (home, home)) if self._folds else ("", (home,))
            told = sql.NAMES if self._columns >= Counted.VERSIONS else sql.NAMES.replace("MAX(version)", "0")
            rows = yield from self._spelled(told + exactly + sql.GROUPED, given)
            for key, (count, version) in rows.items():
                name = names.read_key(key.removesuffix(HASH))
                if name is not None:
                    # What has a version is a value, whatever is left of a list beside it.
                    found[name] = (
                        found.get(name, True)
                        and version == 0
                        and (count > 1 or key + HASH in rows or key.endswith(HASH))
                    )
        return found

    def sessions(self, user_id: str | None) -> Operation[set[str]]:
        found: set[str] = set()
        if self._layout == "2.x":
            prefix = names.user_prefix(user_id)
            found = {place[len(prefix) :] for place in (yield from self._beginning(prefix, user_id))}
        if user_id is None:
            found |= yield from self._sessions_of_1x()
        return found | (yield from self._sessions_under_own_names(user_id))

    def _beginning(self, prefix: str, user_id: str | None) -> Operation[set[str]]:
        # Java's sandboxes are nobody's.
        hidden = IDS, OF_SANDBOXES if user_id is None else IDS
        return set((yield from self._spelled(sql.SESSIONS + sql.BETWEEN, (*hidden, *_begins(prefix)))))

    def _spelled(self, statement: str, parameters: tuple[str, ...]) -> Operation[dict[str, Any]]:
        """Ask for names as they are spelled, with what is asked for beside them."""
        rows = yield sql.as_spelled(statement, self._folds), parameters
        return {name.decode() if isinstance(name, bytes) else name: rest for name, *rest in rows}

    def _sessions_of_1x(self) -> Operation[set[str]]:
        if self._layout == "1.x":
            places = yield from self._spelled(sql.SESSIONS, (IDS, OF_SANDBOXES))
        else:
            places = yield from self._spelled(sql.SESSIONS + sql.UNLIKE, (IDS, OF_SANDBOXES, "%:%"))
        return {place for place in places if names.plain_name(Slot(None, place), "1.x") == place}

    def _sessions_under_own_names(self, user_id: str | None) -> Operation[set[str]]:
        places = yield from self._beginning("~", user_id)
        slots = [names.read_ids(place) for place in places if place.startswith(names.SPELLED)]
        if any(place.startswith(names.HASHED) for place in places):
            kept = yield from self._spelled(sql.KEPT_IDS + sql.BETWEEN, (IDS, *_begins(names.HASHED)))
            slots += [names.read_ids(ids) for place, (ids,) in kept.items() if place in places]
        # Some are of the other layout.
        ours = [slot for slot in slots if slot is not None and names.own_name(slot) in self._homes(slot)]
        return {slot.session_id for slot in ours if slot.user_id == user_id}

    # Changing.

    async def prepared(self, text: str) -> Summed:
        """Return a text that is to be saved."""
        needs_sum = self._columns >= Counted.CHECKSUMS or (self._seen is not None and self._keeps_texts)
        return await Summed(text).summed() if needs_sum else Summed(text)

    def put(self, slot: Slot, name: str, value: Summed, expected: int | None, again: bool) -> Operation[int]:
        held = yield from self._hold(slot, name)
        row = None if held is None or held.is_list else held.rows[0]
        # Without a column for it, a version is that of a text which this process has met.
        is_counted = row is None or self._columns >= Counted.VERSIONS
        has_met = self._keeps_texts and self._seen is not None and self._seen.get((slot, name)) is not None
        is_known = is_counted or has_met
        version = 0 if row is None else self._version(slot, name, row)
        if expected is not None and (version != expected or not is_known or (held is not None and held.is_list)):
            if not again:
                raise StaleState(*slot, name, expected)
            if row is not None and row.text == value.text and (version == expected + 1 or not is_counted):
                return expected + 1
            # An earlier run may have been done before others saved this.
            raise OutcomeUnknown("a state", unanswered=True)
        if held is None:
            place, key = yield from self._make_room(slot, name)
            yield self._add(place, key, 0, value, 1)
            # Behind it, so that who makes a list of this name meanwhile is met in one of the two rows.
            yield self._cut(place, key + HASH)
        elif row is None:
            yield self._cut(held.place, held.key)
            yield self._cut(held.place, held.key + HASH)
            yield self._add(held.place, held.key, 0, value, 1)
        else:
            yield self._set(held.place, held.key, value, version + 1)
            if row.version == 0 or held.mark is not None:
                # It was a list whose hash somebody removed, or over which Java saved a value.
                yield self._cut(held.place, held.key, 1)
                yield self._cut(held.place, held.key + HASH)
        return version + 1

    def replace(
        self, slot: Slot, name: str, value: Summed, expected: int | None, fence: Fence | None
    ) -> Statement | None:
        """Return the one statement that replaces a value and gives its version, as nearly all saves can be made.

        It gives nothing, and changes nothing, where there is no value, where it is at another version, where the lease
        is lost, or where `put` has to find out.
        """
        if self._folds or self._columns < Counted.VERSIONS:
            return None
        seen = None if self._seen is None else self._seen.get((slot, name))
        if seen is not None and expected is not None and (expected != seen.version or seen.stored == 0):
            return None
        # The next version is above all that this process gave.
        least = 0 if seen is None else seen.version
        given: list[Any] = [least, value.text, self._homes(slot)[0], self._keys(name)[0]]
        conditions: list[str] = []
        if self._columns >= Counted.CHECKSUMS:
            given = [least, value.checksum, *given]
            if seen is None or expected is None:
                conditions.append(sql.COUNTED)
        if seen is not None and (conditions or expected is not None):
            conditions.append(sql.AS_SEEN)
            given += [seen.stored, seen.checksum]
        statement = sql.replace_value(self._columns) + (f" AND ({' OR '.join(conditions)})" if conditions else "")
        if seen is None and expected is not None:
            statement += sql.EXPECTED
            given.append(expected)
        if fence is not None:
            statement += sql.LEASED
            given += [fence.slot.user_id or "", fence.slot.session_id, fence.token]
        return statement + sql.GIVE_VERSION, tuple(given)

    def add_first(self, slot: Slot, name: str, value: Summed, fence: Fence | None) -> Statement | None:
        """Return the one statement that saves a value where there is none, and gives its version.

        It gives nothing, and changes nothing, where the name holds something, where the lease is lost, or where `put`
        has to find out.
        """
        homes, key = self._homes(slot), self._keys(name)[0]
        if self._folds or self._columns < Counted.VERSIONS or len(homes) > 1 or homes[0].startswith(names.HASHED):
            return None
        text, _, *note = self._kept(value, 1)
        statement = sql.add_first(self._columns)
        given = [homes[0], key, text, *note, homes[0], key, key + HASH]
        if fence is not None:
            statement += sql.LEASED
            given += [fence.slot.user_id or "", fence.slot.session_id, fence.token]
        return statement + sql.GIVE_VERSION, tuple(given)

    def saved(self, slot: Slot, name: str, value: Summed, version: int) -> None:
        """Take note that `put`, `replace` or `add_first` is done, and gave this version."""
        if self._seen is not None:
            stored = version if self._columns >= Counted.VERSIONS else 0
            self._seen.saved((slot, name), Seen(stored, value.checksum, version) if self._keeps_texts else None)

    def put_list(self, slot: Slot, name: str, texts: Sequence[str], *, fresh: bool, again: bool) -> Operation[None]:
        held = yield from self._hold(slot, name)
        if fresh and held is not None:
            if not again:
                raise StaleState(*slot, name, 0)
            found = yield sql.ITEMS, (held.place, held.key)
            if held.is_list and [text for _, text in found] == [*texts]:
                return
            raise OutcomeUnknown("a state", unanswered=True)
        mark = FILLED if texts else EMPTY
        common = 0
        if held is not None and held.is_list:
            place, key = held.place, held.key
            if held.mark != mark:
                yield self._set(place, key + HASH, Summed(mark), 0)
            found = yield sql.ITEMS, (place, key)
            if [index for index, _ in found] == list(range(len(found))):
                common = common_items([text for _, text in found], texts)
            if common < len(found):
                yield self._cut(place, key, common)
        else:
            place, key = (yield from self._make_room(slot, name)) if held is None else held[:2]
            if held is not None:
                yield self._cut(place, key + HASH)
            yield self._add(place, key + HASH, 0, Summed(mark), 0)
            yield self._cut(place, key)
        if common < len(texts):
            items = ((place, key, index, *self._kept(Summed(texts[index]), 0)) for index in range(common, len(texts)))
            yield sql.add_row(self._columns), Many(items)

    def drop(self, slot: Slot, name: str | None) -> Operation[None]:
        for place in self._places(slot):
            # Held first, by a statement of its own: one that waited for who appends would not see what was appended.
            if name is None:
                yield sql.HOLD_SLOT, (place,)
                yield (sql.DROP + sql.EXACTLY, (place, place)) if self._folds else (sql.DROP, (place,))
                continue
            yield from self._find([place], name, sql.HELD)
            for key in self._keys(name):
                yield self._cut(place, key)
                yield self._cut(place, key + HASH)
            if place.startswith(names.HASHED):
                # Its ids go with the last name, unless somebody else has just come.
                yield sql.HOLD_IDS, (place, IDS)
                if place not in (yield from self._spelled(sql.HAS, (place, IDS))):
                    yield self._cut(place, IDS)

    def forget(self, slot: Slot) -> Operation[bool]:
        there = yield from self.exists(slot)
        if there:
            yield from self.drop(slot, None)
        return there

    def forget_spelled(self, slot: Slot) -> Operation[bool]:
        """Do the same in a table that cannot keep every id, where names cannot be asked for as usual."""
        there = False
        for place in self._places(slot):
            there = bool((yield sql.HAS_SPELLED, (place,))) or there
            yield sql.DROP_SPELLED, (place,)
        return there

    def _add(self, place: str, key: str, index: int, value: Summed, version: int) -> Statement:
        return sql.add_row(self._columns), (place, key, index, *self._kept(value, version))

    def _set(self, place: str, key: str, value: Summed, version: int) -> Statement:
        return sql.set_row(self._columns), (*self._kept(value, version), place, key)

    def _kept(self, value: Summed, version: int) -> tuple[Any, ...]:
        """Return what the columns of a row hold; rows of lists have neither a version nor a note."""
        note = note_of(version, value) if version and self._columns >= Counted.CHECKSUMS else None
        return (value.text, version, note)[: self._columns]

    def _cut(self, place: str, key: str, index: int = 0) -> Statement:
        """Return the statement that removes the rows of a name from an item on."""
        if self._folds:
            return sql.CUT + sql.EXACTLY + sql.EXACT_KEY, (place, key, index, place, key)
        return sql.CUT, (place, key, index)

    def _hold(self, slot: Slot, name: str) -> Operation[_Held | None]:
        """Find what is to be replaced, and let nobody else replace it before this is over."""
        homes = self._homes(slot)
        # Where only we write, the version says all that has to be known of a text.
        texts = self._seen is not None
        held = yield from self._find(homes, name, sql.HELD, texts=texts)
        if held is None:
            # There is no row to be held.
            yield sql.LOCK_NAME, (f"{homes[0]} {name}",)
            held = yield from self._find(homes, name, sql.HELD, texts=texts)
        return held

    def _make_room(self, slot: Slot, name: str) -> Operation[tuple[str, str]]:
        """Return where a name that is not kept yet is to be, in rows."""
        place, *others = self._homes(slot)
        if (
            self._folds
            and others
            and (names.is_like_ours(place) or (yield from self._spelled(sql.SPELLINGS, (place,))).keys() - {place})
        ):
            # The table takes another slot for this one, or may come to.
            place = others[0]
        if place.startswith(names.HASHED) and not (yield sql.HOLD_IDS, (place, IDS)):
            yield self._add(place, IDS, 0, Summed(names.write_ids(slot)), 0)
        key, *others = self._keys(name)
        marked = key, key + HASH
        if others and (
            names.is_like_ours(key)
            or names.is_like_a_hash(key)
            or (yield from self._spelled(sql.KEY_SPELLINGS, (place, *marked, key))).keys() - {*marked}
        ):
            key = others[0]
        return place, key


def _first(found: dict[tuple[str, str], list[Row]], places: Sequence[str], keys: Sequence[str]) -> _Held | None:
    """Return what the first of these names holds in the first of these slots that holds anything of them."""
    for place in places:
        for key in keys:
            rows, marks = found.get((place, key), []), found.get((place, key + HASH), [])
            if rows or marks:
                return _Held(place, key, rows, str(marks[0].text) if marks else None)
    return None


def _begins(prefix: str) -> tuple[str, str]:
    """Return from where to where names begin so; all prefixes end with a character that another follows."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)

"""Groups by number: the key columns' values, compared exactly, and their order among one another.

NULL is a group and sorts last, NaN is one group after all numbers, -0.0 is 0.0, text compares by its bytes. A group's words are
its columns' normalized bits (of text, its code here) and one word that says which are NULL. Memory follows what is held: when
numbers run out, groups that nobody holds are forgotten first, and with them the text that only they had.

What goes in: the key columns of a batch, as bits (`columns.Read`) or as Arrow text. What comes out: an int64 group number
a tuple. Numbers are small and used again after a group was forgotten, so arrays by group stay small. A number means
nothing outside of this object: two threads, or two runs, number the same key differently, and no result shows a number.

A look-up costs one hash and, usually, one comparison a tuple (`core.kernels.groups`). Small integers as the only key skip
the hash: `_direct` is a table by value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.aggregate.closed import same
from plait.core.aggregate.columns import Read, array_of, bits_of, is_fixed, none_null, plain
from plait.core.kernels import groups as table
from plait.core.values import key_words, normal_bits, one_array
from plait.encodings import recast
from plait.order import BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.query.dedup import Dedup
from plait.schema import takeable

_NAN = int(np.array([np.nan]).view(np.int64)[0])
FIRST = 1024
SMALL = 1 << 14  # integers below are looked up by their value: a source's tallies
DIRECT = 1 << 16  # and by who numbers groups, of whom there is one a thread


class _Texts:
    """Codes for one key column's text, bytes or nothing at all (a column of type null).

    Codes are small integers, used again when a text was forgotten. `values[code]` is the text, `codes` the way back. A
    code is forgotten only if no group that is held has it and no tuple that may still be on its way was encoded with it
    (`_until`, `keep`): a source may encode a batch long before the batch is added up.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.codes: dict[Any, int] = {}
        self.values: list[Any] = []
        self._free: list[int] = []
        self._until: dict[int, int] = {}  # by code: no tuple that has it is after this ts, as far as was said
        self.lock = threading.RLock()  # several sources may encode at once (the W-Hive)

    def encode(self, column: Any, until: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Codes, and which are NULL. `until`: the ts of the last tuple that is encoded.

        Codes are int64, one a row; a NULL has code 0 and is told by the mask. Distinct values of a batch are looked up
        once each.
        """
        values = one_array(column)
        values = recast(values, takeable(values.type))
        if pa.types.is_null(values.type):
            return np.zeros(len(values), np.int64), np.ones(len(values), bool)
        found = pc.dictionary_encode(values)
        with self.lock:
            mine = [self._code(v) for v in found.dictionary.to_pylist()]
            if until is not None:
                for code in mine:
                    self._until[code] = max(until, self._until.get(code, until))
        codes = np.array(mine or [0], np.int64)
        return codes[found.indices.fill_null(0).to_numpy(zero_copy_only=False)], np.asarray(found.indices.is_null())

    def _code(self, value: Any) -> int:
        code = self.codes.get(value)
        if code is None:
            if self._free:
                code = self._free.pop()
                self.values[code] = value
            else:
                code = len(self.values)
                self.values.append(value)
            self.codes[value] = code
        return code

    def keep(self, codes: np.ndarray, since: int) -> None:
        """Forget all but these codes, and those of tuples that are not below `since`, which may be on their way."""
        live = set(codes.tolist())
        for value, code in list(self.codes.items()):
            if code not in live and self._until.get(code, since) <= since:
                self._until.pop(code, None)
                del self.codes[value]
                self.values[code] = None
                self._free.append(code)

    def take(self, codes: np.ndarray, null: np.ndarray) -> pa.Array:
        """The text of codes, as a column of the key's type; NULL where `null` says so."""
        kind = plain(self.kind)
        if pa.types.is_null(kind):
            return pa.nulls(len(codes))
        used, back = np.unique(codes, return_inverse=True)
        known = [self.values[code] if code < len(self.values) else None for code in used.tolist()]
        made = pa.array(known, takeable(kind)).take(pa.array(back.reshape(-1), mask=null))
        return made if made.type == self.kind else made.cast(self.kind)

    def ranks(self, codes: np.ndarray) -> np.ndarray:
        """A number for each code that orders it as its text's UTF-8 bytes are ordered; equal codes have equal numbers."""
        used, back = np.unique(codes, return_inverse=True)
        raw = [self.values[c] if c < len(self.values) else None for c in used.tolist()]
        named = [b"" if v is None else v.encode("utf-8", "surrogatepass") if isinstance(v, str) else v for v in raw]
        place = np.empty(len(used), np.int64)
        place[np.array(sorted(range(len(named)), key=named.__getitem__), np.int64)] = np.arange(len(used))
        return place[back.reshape(-1)]


class Groups:
    """Numbers for groups. `held` says, group by group, whether anybody holds it still.

    - `words`: int64, a row for each key column and a last one whose bit k says that column k is NULL; a column by group.
      A NULL's own word is 0, so NULL and 0 differ by that bit.
    - `_table`: the hash table, group number + 1, twice as long as `capacity`.
    - `_free[:_left]`: numbers that nobody has, as a stack. `number` groups have one.
    - `since`: who owns this sets it to the ts below which all tuples have been added, so texts may be forgotten.
    - `_by_value`: the key is one column of integers, so `_direct` may serve.
    """

    def __init__(self, node: Aggregate | Dedup, schema: pa.Schema, held: Callable[[int], np.ndarray]) -> None:
        self.by = [(name, schema.field(name).type) for name in node.by]
        self._texts = {name: _Texts(kind) for name, kind in self.by if not is_fixed(kind)}
        self._held = held
        self.since = BEFORE_ALL  # tuples before it are held, or gone: see `_Texts.keep`
        self.capacity = FIRST
        self._table = np.zeros(2 * FIRST, np.int64)
        self.words = np.zeros((len(self.by) + 1, FIRST), np.int64)
        self._free = np.arange(FIRST)[::-1].copy()
        self._left = FIRST
        self._swept = 0  # groups that were held at the last sweep
        # Those that had numbers when this was asked for, in the first `_ordered` places, and if `_one_word`, the word that orders
        # each of them: see `in_order`.
        self._ranked, self._ordered, self._one_word = np.empty((2, 0), np.int64), 0, False
        (_, kind), *more = self.by or [("", pa.null())]
        self._by_value = is_fixed(kind) and not more and not pa.types.is_floating(plain(kind))
        self._direct = np.full(DIRECT if self._by_value else 0, -1, np.int64)

    @property
    def number(self) -> int:
        return self.capacity - self._left

    def find(self, read: Read, rows: pa.Table | None, n: int) -> np.ndarray:
        """The group of each tuple.

        int64, one a tuple. `rows` has the key columns of text; it may be None where there are none. Without key columns
        there is one group, 0.
        """
        if not self.by:
            return self.only(n)
        out, known = np.empty(n, np.int64), 0
        keys = self._small_keys(read)
        if keys is not None:
            known = table.look_up_small(keys, n, self._direct, out)
        return out if known == n else self.numbers(self.key_words(read, rows, n), out, known)

    def only(self, n: int) -> np.ndarray:
        """Without keys: the one group, number 0."""
        if self._left == self.capacity:
            self._left -= 1
        return np.zeros(n, np.int64)

    def key_words(self, read: Read, rows: pa.Table | None, n: int, until: int | None = None) -> np.ndarray:
        """What tells groups apart: a row for each key column, and one that says which are NULL. No tuple is after `until`.

        int64, of shape (key columns + 1, n). Floats are normalized: one pattern for all NaN, 0.0 for -0.0. So equality of
        words is equality of groups, with no exceptions left.
        """
        words = np.zeros((len(self.by) + 1, n), np.int64)
        for k, (name, kind) in enumerate(self.by):
            if name in self._texts:
                assert rows is not None
                words[k], null = self._texts[name].encode(rows.column(name), until)
            else:
                bits, valid = read.bits[name]
                words[k] = _normal(bits, kind)
                if none_null(valid):
                    continue
                null = valid == 0
            if null.any():
                words[k][null] = 0
                words[-1] |= null.astype(np.int64) << k
        return words

    def numbers(self, words: np.ndarray, out: np.ndarray | None = None, first: int = 0) -> np.ndarray:
        """The groups of these words (see `key_words`), which another thread may have made: the W-Hive's sources do.

        Those that are not known get numbers. `out` may have those before the `first` already.
        """
        n = words.shape[1]
        if self._left < n:
            self._make_room(words)
            first = 0  # numbers may have changed
        out = np.empty(n, np.int64) if out is None else out
        left = table.look_up(words, first, n, first, self._table, self.words, self._free, self._left, self._direct, out)
        self._left = int(left)
        return out

    @property
    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `core.kernels.groups.known` reads: the table, the words by group, and groups by small keys. Good until a group is
        added."""
        return self._table, self.words, self._direct

    def numbers_by(self, look_up: Callable[..., int], n: int) -> None:
        """As `numbers`, of `n` words that `look_up` reads where they lie. No number that was given before changes.

        `look_up` is given the table of `core.kernels.groups.look_up`, and gives what is left of free numbers.
        """
        if self._left < n:
            self._grow(n)
        self._left = int(look_up(self._table, self.words, self._free, self._left, self._direct))

    def swept(self, n: int, words: Callable[[], np.ndarray]) -> bool:
        """Before `n` more are added: whether groups that nobody holds were forgotten, so that numbers may mean others than
        before.

        That is done where numbers are short, and it pays (`_make_room`). `words` are all that are about to be looked up.
        """
        if self._left >= n or not self._worth_a_sweep():
            return False
        self._sweep(words())
        return True

    def find_rows(self, rows: pa.Table) -> np.ndarray:
        """The group of each row of a table that holds the key columns."""
        n, bits = rows.num_rows, {}
        for name, kind in self.by:
            if is_fixed(kind):
                found, valid = bits_of(rows.column(name))
                bits[name] = (found, np.ones(n, np.uint8) if valid is None else valid)
        return self.find(Read(bits, [], np.ones(n, np.uint8)), rows, n)

    def _small_keys(self, read: Read) -> np.ndarray | None:
        """The keys, where one column of integers is all and none is NULL: small ones are looked up by their value."""
        if not self._by_value:
            return None
        bits, valid = read.bits[self.by[0][0]]
        return bits if none_null(valid) else None

    def owner(self, read: Read, rows: pa.Table | None, n: int, crew: int) -> np.ndarray:
        """Which of `crew` threads each tuple's group belongs to: a function of the key alone."""
        words = np.zeros((len(self.by), n), np.int64)
        for k, (name, kind) in enumerate(self.by):
            if name in self._texts:
                assert rows is not None
                words[k] = key_words(rows.column(name), "value").view(np.int64)
            else:
                bits, valid = read.bits[name]
                words[k] = np.where(valid != 0, _normal(bits, kind), -1)
        out = np.empty(n, np.int64)
        table.owners(words, n, crew, out)
        return out

    def _make_room(self, words: np.ndarray) -> None:
        """Have numbers for all of these.

        Groups that nobody holds are swept out first, but only if numbers have doubled since the last sweep: a sweep costs
        a pass over all groups, and must pay. Then the table is doubled until a quarter of it is free.
        """
        if self._worth_a_sweep():
            self._sweep(words)
        self._grow(words.shape[1])

    def _worth_a_sweep(self) -> bool:
        return self.number > 2 * self._swept + FIRST

    def _grow(self, n: int) -> None:
        capacity = self.capacity
        while self._left + capacity - self.capacity < max(n, capacity // 4):
            capacity *= 2
        if capacity == self.capacity:
            return
        words = np.zeros((self.words.shape[0], capacity), np.int64)
        words[:, : self.capacity] = self.words
        live = np.ones(capacity, np.uint8)
        live[self._free[: self._left]] = 0
        live[self.capacity :] = 0
        self._free = np.concatenate((np.arange(self.capacity, capacity)[::-1], self._free[: self._left]))
        self._free = np.concatenate((self._free, np.zeros(capacity - len(self._free), np.int64)))
        self._left += capacity - self.capacity
        self.words, self.capacity, self._ordered = words, capacity, 0
        self._table = np.zeros(2 * capacity, np.int64)
        table.rebuild(self.words, live, self._table)

    def _sweep(self, wanted: np.ndarray) -> None:
        """Forget groups that nobody holds, and text that neither the others have nor those that are about to get a number.

        `wanted` are words that are about to be looked up: their texts were encoded just now, and must keep their codes.
        The table is built anew, since an open-addressing table has no deletion. All shortcuts by number (`_direct`,
        `_ordered`) are cleared.
        """
        live = self._held(self.capacity).astype(np.uint8)
        gone = np.flatnonzero(live == 0)
        self._left = len(gone)
        self._free[: self._left] = gone[::-1]
        self._table[:] = 0
        self._direct[:] = -1
        table.rebuild(self.words, live, self._table)
        self._swept, self._ordered = int(live.sum()), 0
        for k, (name, _) in enumerate(self.by):
            if name in self._texts:
                own = (live != 0) & (self.words[-1] >> k & 1 == 0)
                asked = wanted[k][wanted[-1] >> k & 1 == 0]
                with self._texts[name].lock:
                    self._texts[name].keep(np.unique(np.append(self.words[k][own], asked)), self.since)

    def columns(self, groups: np.ndarray) -> list[pa.Array]:
        """The key columns of these groups."""
        return [make() for make in self.columns_later(groups)]

    def columns_later(self, groups: np.ndarray) -> list[Callable[[], pa.Array]]:
        """What makes the key columns of these groups, at any time: what is known of them now is copied, text is looked up."""
        out: list[Callable[[], pa.Array]] = []
        for k, (name, kind) in enumerate(self.by):
            words = np.empty(len(groups), np.int64)
            there = None
            if table.take_words(self.words, groups, k, words) or name in self._texts:
                there = self.words[-1][groups] >> k & 1 == 0
            if name in self._texts:
                assert there is not None
                out.append(partial(same, self._texts[name].take(words, ~there)))
            else:
                out.append(partial(array_of, words, there, kind))
        return out

    def in_order(self) -> np.ndarray:
        """All groups that have numbers, in the order of their keys.

        The answer is kept. Groups that came since are sorted by themselves and put between the others; where that takes more
        than one column, by a stable sort, which two sorted runs take little time of. A sweep, or a growth, makes it be computed
        anew.
        """
        if self._ranked.shape[1] < self.capacity:
            self._ranked, self._ordered = np.empty((2, self.capacity), np.int64), 0
        known, number = self._ordered, self.number
        if known == 0:
            live = np.ones(self.capacity, bool)
            live[self._free[: self._left]] = False
            self._rank(self._sorted(np.flatnonzero(live), 0))
        elif known < number:
            fresh = self._sorted(self._free[self._left : self._left + number - known], 0)
            words = self._by_one_word(fresh) if self._one_word else None
            if words is None:
                self._rank(self._sorted(np.append(self._ranked[0, :known], fresh), known))
            else:
                table.insert(self._ranked, known, fresh, words)
        self._ordered = number
        return self._ranked[0, :number]

    def _rank(self, groups: np.ndarray) -> None:
        """These are all, in order."""
        words = self._by_one_word(groups)
        self._one_word = words is not None
        self._ranked[0, : len(groups)] = groups
        if words is not None:
            self._ranked[1, : len(groups)] = words

    def _by_one_word(self, groups: np.ndarray) -> np.ndarray | None:
        """What orders these groups, if it is the value of one column of integers, and none of them is NULL."""
        if not self._by_value or pa.types.is_uint64(plain(self.by[0][1])):
            return None
        words = np.empty(len(groups), np.int64)
        return None if table.take_words(self.words, groups, 0, words) else words

    def ranks(self, groups: np.ndarray) -> np.ndarray:
        """Numbers that order these groups as their keys; the same group has the same number."""
        used, back = np.unique(groups, return_inverse=True)
        rank = np.empty(len(used), np.int64)
        rank[np.searchsorted(used, self._sorted(used, 0))] = np.arange(len(used))
        return rank[back.reshape(-1)]

    def _sorted(self, groups: np.ndarray, sorted_already: int) -> np.ndarray:
        """Groups in the order of their keys; so many of them, from the first on, are.

        Order of keys: column by column; NULL last (2), NaN before it (1), numbers and text first (0), then the value.
        Floats are turned into integers that order alike: the bits below the sign are flipped where the sign is set.
        """
        by: list[np.ndarray] = []
        for k, (name, kind) in enumerate(self.by):
            words = self.words[k][groups]
            null = self.words[-1][groups] >> k & 1
            if name in self._texts:
                by += [2 * null, self._texts[name].ranks(words)]
            elif pa.types.is_floating(plain(kind)):
                nan = words == _NAN
                ordered = words ^ ((words >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
                by += [np.where(nan & (null == 0), 1, 2 * null), np.where(nan, 0, ordered)]
            elif pa.types.is_uint64(plain(kind)):
                by += [2 * null, words.view(np.uint64)]
            else:
                by += [2 * null, words]
        if not by:
            return groups
        if len(by) == 2 and not by[0].any():
            # One column without NULL or NaN: a plain sort is several times as fast; a stable one sees what is in order.
            near = 2 * sorted_already > len(groups)
            return np.asarray(groups[np.argsort(by[1], kind="stable" if near else "quicksort")])
        return np.asarray(groups[np.lexsort(by[::-1])])


def _normal(bits: np.ndarray, kind: pa.DataType) -> np.ndarray:
    """Bits of which equal values have equal ones."""
    return normal_bits(bits.view(np.float64)) if pa.types.is_floating(plain(kind)) else bits

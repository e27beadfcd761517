"""Inputs made of good ones: texts by their words, bytes by their bits, trees of JSON by their leaves."""

# Tables of values stand as they are read: many on a line.
# ruff: noqa: E501  # tables of inputs, a line each
# fmt: off

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
#: Characters that are seldom thought of: ends of texts, halves of pairs, marks without a letter, other digits and blanks.
ODD = (
    *("\0", "\n", "\r\n", "\t", "\x7f", "\x1b", "\\", '"', "'", "`", "''", '"""', "\ud800", "\udfff", "\ufeff", "\u200b", "\u202e"),
    *("\u0301", "ß", "İ", "é", "٣", "²", "Ⅷ", "½", "\u00a0", "\u2028", "𝟙", "😀", "\U0010ffff", "名", "{}", "{0}", "%s", "$(x)", "../"),
    *("(", ")", "[", "]", "{", "}", ";", ",", ".", "..", "*", "/", "--", "/*", "*/", "#", "=", "==", "<>", "||", "->", "::", "@", "!"),
)
NUMBERS = (
    *("0", "-0", "1", "-1", "00", "1e3", "1e999", "-1e999", "1e-999", "0x10", "1_000", "0.1", ".5", "5.", "NaN", "nan", "Infinity", "inf"),
    *(str(sign * (1 << bits) + d) for bits in (7, 8, 15, 16, 31, 32, 62, 63, 64, 127) for sign in (1, -1) for d in (-1, 0, 1)),
    *("9" * 19, "9" * 40, "9" * 400, "9" * 5_000, "0." + "9" * 400, "1" + "0" * 30),
)


def _span(rng: random.Random, size: int, most: int = 12) -> tuple[int, int]:
    begin = rng.randrange(size + 1)
    return begin, min(size, begin + rng.randint(0, most))


def text(rng: random.Random, corpus: Sequence[str], words: Sequence[str] = ()) -> str:
    """One of the corpus, changed by its words some times; now and then nested deep, or long."""
    if rng.random() < 0.02:
        return noise(rng, [*words, *ODD, *NUMBERS])
    parts = _WORDS.findall(rng.choice(corpus))
    for _ in range(_times(rng)):
        begin, end = _span(rng, len(parts))
        match rng.randrange(9):
            case 0:
                del parts[begin:end]
            case 1:
                parts[begin:begin] = parts[begin:end]
            case 2:
                parts[begin:begin] = [rng.choice(words or ODD)]
            case 3:
                parts[begin : begin + 1] = [rng.choice(words or NUMBERS)]
            case 4:
                parts[begin : begin + 1] = [rng.choice(NUMBERS)]
            case 5:
                parts[begin:begin] = [rng.choice(ODD)]
            case 6:
                other = _WORDS.findall(rng.choice(corpus))
                from_, to = _span(rng, len(other), 30)
                parts[begin:end] = other[from_:to]
            case 7:
                rng.shuffle(several := parts[begin:end])
                parts[begin:end] = several
            case _:
                parts[begin:end] = _many(rng, parts[begin:end])
    return "".join(parts)


def _times(rng: random.Random) -> int:
    return min(12, 1 + int(rng.expovariate(0.6)))


def _many(rng: random.Random, parts: list[str]) -> list[str]:
    """The same again and again, mostly a few times and seldom by the thousand; or inside of parentheses."""
    times = rng.choice((2, 3, 10)) if rng.random() < 0.97 else rng.choice((300, 2_000, 20_000))
    if rng.random() < 0.5:
        opening, closing = rng.choice(("()", "[]", "{}", "''", '""'))
        return [opening * times, *parts, closing * times]
    return parts * times if sum(map(len, parts)) * times < 1_000_000 else parts


def noise(rng: random.Random, words: Sequence[str]) -> str:
    return rng.choice(("", " ")).join(rng.choice(words) for _ in range(rng.randint(0, 12)))


def data(rng: random.Random, corpus: Sequence[bytes], words: Sequence[bytes] = ()) -> bytes:
    """One of the corpus with some bytes changed, cut off, twice there or taken from another one."""
    found = bytearray(rng.choice(corpus))
    for _ in range(_times(rng)):
        size = len(found)
        begin, end = _span(rng, size, 40)
        match rng.randrange(9):
            case 0 if size:
                found[rng.randrange(size)] ^= 1 << rng.randrange(8)
            case 1 if size:
                found[rng.randrange(size)] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)))
            case 2:
                width = rng.choice((1, 2, 4, 8))
                value = rng.choice((0, 1, -1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1, rng.getrandbits(8 * width)))
                found[begin : begin + width] = (value % (1 << 8 * width)).to_bytes(width, rng.choice(("little", "big")))
            case 3:
                del found[begin:end]
            case 4:
                found[begin:begin] = found[begin:end]
            case 5:
                other = rng.choice(corpus)
                from_, to = _span(rng, len(other), 200)
                found[begin:end] = other[from_:to]
            case 6:
                found[begin:begin] = rng.choice(words) if words else rng.randbytes(rng.randint(1, 9))
            case 7:
                found[begin:end] = bytes(end - begin)
            case _:
                if rng.random() < 0.3:
                    del found[rng.randrange(size + 1) :]
    return bytes(found)


#: Leaves of a tree that stand where others belong.
LEAVES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 2**64, 10**40, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "0", "a" * 300, "\0", "\ud800", "../../etc/passwd", "é", "text", "integers", [], {}, [[]], [None], {"": None}, {"x": {"x": 1}}),
)


def tree(rng: random.Random, given: Any, leaves: Sequence[Any] = LEAVES) -> Any:
    """A tree of dicts and lists with some of it replaced, taken out, named otherwise or twice there."""
    for _ in range(_times(rng)):
        given = _changed(rng, given, leaves)
    return given


def _changed(rng: random.Random, given: Any, leaves: Sequence[Any]) -> Any:
    if isinstance(given, dict) and given and rng.random() < 0.9:
        key = rng.choice(list(given))
        match rng.randrange(6):
            case 0:
                return {name: value for name, value in given.items() if name != key}
            case 1:
                return given | {rng.choice((f"{key}x", "", "x", rng.choice(ODD))): rng.choice(leaves)}
            case _:
                return given | {key: _changed(rng, given[key], leaves)}
    if isinstance(given, list) and given and rng.random() < 0.8:
        at = rng.randrange(len(given))
        match rng.randrange(5):
            case 0:
                return given[:at] + given[at + 1 :]
            case 1:
                return given[:at] + given[at:] * 2
            case _:
                return [*given[:at], _changed(rng, given[at], leaves), *given[at + 1 :]]
    if isinstance(given, str) and rng.random() < 0.4:
        return text(rng, [given])
    return rng.choice(leaves)


def smaller(given: Any, fails: Callable[[Any], bool], seconds: float = 2.0) -> Any:
    """Less of a text or bytes, as long as it fails in the same way."""
    if not isinstance(given, (str, bytes)):
        return given
    size, until = len(given) // 2, time.monotonic() + seconds
    while size and time.monotonic() < until:
        begin = 0
        while begin < len(given) and time.monotonic() < until:
            less = given[:begin] + given[begin + size :]
            if fails(less):
                given = less
            else:
                begin += size
        size //= 2
    return given

"""Numbers in text come in as they are, or are refused where they stand: CSV and JSON lines, any block, any depth."""

from __future__ import annotations

import decimal
import math
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait.connectors import csv_file, json_file
from plait.connectors.folder import feed
from plait.query.stream import stream


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "BLOCK_BYTES", 256)
    monkeypatch.setattr(json_file, "BLOCK_BYTES", 256)


def written(folder: Path, texts: list[str], form: str) -> None:
    """One column x beside ts; in the form "inner" it lies in a struct's list."""
    if form == "csv":
        (folder / "a.csv").write_text("ts,x\n" + "".join(f"{k},{x}\n" for k, x in enumerate(texts)))
    else:
        shown = (lambda x: f'{{"l": [null, {x}]}}') if form == "inner" else str
        lines = [f'{{"ts": {k}, "x": {shown(x)}}}\n' for k, x in enumerate(texts)]
        (folder / "a.jsonl").write_text("".join(lines))


def read(folder: Path, form: str, kind: pa.DataType | None, pull: Any) -> list[Any]:
    if kind is not None and form == "inner":
        kind = pa.struct([("l", pa.list_(kind))])
    schema = None if kind is None else pa.schema([("ts", pa.int64()), ("x", kind)])
    found = pull(feed(stream("q", unit="us", schema=schema), folder)).column("x").to_pylist()
    return [each["l"][1] for each in found] if form == "inner" else list(found)


#: What stands there, the column's type (None: nobody has declared it), and whether it must be refused.
CASES = [
    ("1e300", pa.float32(), True), ("-3.5e38", pa.float32(), True), ("3.4e38", pa.float32(), False),
    ("1e400", pa.float64(), True), ("-1e400", None, True), ("1e300", None, False), ("1e-400", pa.float64(), False),
    ("9223372036854775809", None, True), ("-123456789012345678901", None, True), ("9007199254740993", None, True),
    ("9007199254740992", None, False), ("100000000000000000000", None, False), ("123456789012345678901.0", None, False),
    ("9007199254740993", pa.float64(), False), ("18446744073709551615", pa.uint64(), False),
    ("18446744073709551616", pa.uint64(), True), ("1.234", pa.decimal128(9, 2), True), ("1.23", pa.decimal128(9, 2), False),
]  # fmt: skip


@pytest.mark.parametrize("form", ["csv", "json", "inner"])
@pytest.mark.parametrize(("text", "kind", "refused"), CASES)
def test_a_number_comes_in_as_it_is_or_is_refused(
    form: str, text: str, kind: pa.DataType | None, refused: bool, tmp_path: Path, pull: Any
) -> None:
    usual = "1" if kind is not None and pa.types.is_integer(kind) else "1.5"
    texts = [usual] * 40
    row = random.Random(f"{form} {text} {kind}").randrange(1, 40)
    texts[row] = text
    written(tmp_path, texts, form)
    if refused:
        line = row + (2 if form == "csv" else 1)
        with pytest.raises(plait.PlaitError, match=rf"row {row} \(line {line}\)") as found:
            read(tmp_path, form, kind, pull)
        assert re.search(r"a\.(csv|jsonl)", str(found.value))
        assert "x" in str(found.value)
    else:
        value = read(tmp_path, form, kind, pull)[row]
        exact = decimal.Decimal(text)
        assert value == (exact if kind is not None and not pa.types.is_floating(kind) else float(text)) or (
            kind == pa.float32() and math.isclose(value, float(text), rel_tol=1e-7)
        )


@pytest.mark.parametrize("word", ["inf", "-inf", "Infinity", "nan"])
def test_the_words_for_infinity_are_infinite(word: str, tmp_path: Path, pull: Any) -> None:
    written(tmp_path, ["1.5", *[word] * 100, "2.5"], "csv")
    assert str(read(tmp_path, "csv", None, pull)[70]) == str(float(word))


def test_a_number_beside_a_word_keeps_its_digits(tmp_path: Path, pull: Any) -> None:
    digits = "12345678901234567890.123456789012345678"
    (tmp_path / "a.jsonl").write_text(
        f'{{"ts": 1, "d": {digits}, "x": "NaN", "o": {{"d": [{digits}, "a\\"", true]}}}}\n'
    )
    schema = pa.schema([("ts", pa.int64()), ("d", pa.decimal128(38, 18)), ("x", pa.float64())])
    rows = pull(feed(stream("q", unit="us", schema=schema), tmp_path))
    assert rows.column("d").to_pylist() == [decimal.Decimal(digits)]
    assert math.isnan(rows.column("x")[0].as_py())

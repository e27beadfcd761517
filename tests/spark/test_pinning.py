"""What a checkpoint knows of users' functions: another for whatever they reach, the same in every process and place."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import importlib
import itertools
import operator
import os
import random
import re
import subprocess
import sys
import textwrap
import threading
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.query.bind import bind
from plait.spark.formats import Pins
from plait.spark.plan import layout
from plait.spark.plan.fingerprint import fingerprint
from plait.spark.plan.function_text import meaning
from plait.spark.plan.pin import installed, pinned
from plait.spark.plan.resume import check_pins, check_state

SEED = 20261116
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("x", pa.int64())])


def mark(add: Any) -> str:
    """The fingerprint of a query with this function in a custom aggregate."""
    custom = plait.custom("x", init=int, add=add, type="int64")
    query = plait.aggregate(plait.stream("a"), size=5, compute={"c": custom})
    return fingerprint(query, bind(query, {"a": SCHEMA}), layout.choose(query, (1, 1), 1, 1))


def condition_mark(on: Any) -> str:
    query = plait.join(plait.stream("a"), plait.stream("b"), on=on, within=1)
    return fingerprint(query, bind(query, {"a": SCHEMA, "b": SCHEMA}), layout.choose(query, (1, 1), 1, 1))


def test_which_input_a_filter_is_of() -> None:
    """`explain` tells an input by the line of its stream, which is no part of a fingerprint."""
    a, b = plait.stream("a"), plait.stream("b")
    marks = []
    for one, other in ((a, b), (a.where("x > 1"), b), (a, b.where("x > 1")), (a.where("x > 1"), b.where("x > 1"))):
        for query in (plait.join(one, other, within=1), plait.union(one, other), plait.asof(one, other)):
            layouts = layout.choose(query, "auto", 1, 1)
            marks.append(fingerprint(query, bind(query, {"a": SCHEMA, "b": SCHEMA}), layouts))
    assert len(set(marks)) == len(marks)


class Plain:
    def __init__(self, k: Any) -> None:
        self.k = k


class Slotted:
    __slots__ = ("k",)

    def __init__(self, k: Any) -> None:
        self.k = k


class Adder(Plain):
    def __call__(self, state: Any, x: Any) -> Any:
        return state + x * self.k

    def method(self, state: Any, x: Any) -> Any:
        return state + x * self.k


@dataclasses.dataclass(frozen=True)
class Data:
    k: Any


class Named(collections.namedtuple("Named", "k")):
    pass


class Listed(list):  # type: ignore[type-arg]
    pass


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def add_k(state: Any, x: Any, k: Any = 0, *, more: Any = 0) -> Any:
    return state + x * k + more


def over(value: Any) -> Any:
    return lambda state, x: (state, x, value)


def class_with(k: Any) -> type:
    return type("Conf", (), {"k": k, "of": lambda self: self.k})


def decorated(k: Any) -> Any:
    def times(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(state: Any, x: Any) -> Any:
            return function(state, x) * k

        return wrapped

    return times(add_k)


def with_attribute(k: Any) -> Any:
    def add(state: Any, x: Any) -> Any:
        return state + x * add.k  # type: ignore[attr-defined]

    add.k = k  # type: ignore[attr-defined]
    return add


def defaulted(k: Any) -> Any:
    def add(state: Any, x: Any, k: Any = k) -> Any:
        return state + x * k

    return add


def keyword_defaulted(k: Any) -> Any:
    def add(state: Any, x: Any, *, k: Any = k) -> Any:
        return state + x * k

    return add


def nested(k: Any) -> Any:
    space: dict[str, Any] = {"K": k}
    exec("def add(state, x):\n    return state + sum(v * K for v in [x])", space)
    return space["add"]


def module_with(k: Any) -> Any:
    own = types.ModuleType("mine")
    own.__dict__["K"] = k
    own.__dict__["unread"] = random.random()
    exec("def times(x):\n    return x * K", own.__dict__)
    return lambda state, x: state + own.times(x)


def typed(text: str) -> Any:
    space: dict[str, Any] = {}
    exec(f"def add(state, x):\n    return {text}", space)
    return space["add"]


VALUES: dict[str, tuple[Any, Any]] = {
    "int": (1, 2), "bool": (1, True), "zero": (0.0, -0.0), "text": ("a", "b"), "bytes": (b"a", b"b"), "nan": (1.0, float("nan")),
    "timedelta": (dt.timedelta(days=1), dt.timedelta(days=2)), "date": (dt.date(2020, 1, 1), dt.date(2020, 1, 2)),
    "datetime": (dt.datetime.fromisoformat("2020-01-01"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    "decimal": (decimal.Decimal("1.0"), decimal.Decimal("1.00")), "pattern": (re.compile("a"), re.compile("a", re.I)),
    "array": (np.array([1, 2]), np.array([1, 3])), "dtype": (np.array([1], "i4"), np.array([1], "i8")),
    "object array": (np.array([1, "a"], object), np.array([1, "b"], object)), "scalar": (np.float32(1), np.float64(1)),
    "enum": (Colour.RED, Colour.BLUE), "list": ([1, [2]], [1, [3]]), "dict": ({"k": 1}, {"k": 2}),
    "order": ({1: 1, 2: 2}, {2: 2, 1: 1}),
    "set": ({"a", "b"}, {"a", "c"}), "deque": (collections.deque([1]), collections.deque([2])),
    "counter": (collections.Counter("a"), collections.Counter("b")), "path": (Path("a"), Path("b")),
    "default dict": (collections.defaultdict(int), collections.defaultdict(list)), "slice": (slice(1), slice(2)),
    "lambda in a list": ([lambda x: x + 1], [lambda x: x + 2]), "function": (operator.add, operator.sub),
    "itemgetter": (operator.itemgetter(1), operator.itemgetter(2)), "ufunc": (np.add, np.subtract),
    "random": (random.Random(1), random.Random(2)), "schema": (pa.schema([("a", pa.int8())]), pa.schema([("a", pa.int16())])),
}  # fmt: skip

HOLDERS: dict[str, Any] = {
    "closure": over, "attribute": lambda v: over(Plain(v)), "slot": lambda v: over(Slotted(v)), "callable": Adder,
    "bound method": lambda v: Adder(v).method, "dataclass": lambda v: over(Data(v)), "named tuple": lambda v: over(Named(v)),
    "partial": lambda v: functools.partial(add_k, k=v),
    "partial of one": lambda v: functools.partial(functools.partial(add_k, k=v)),
    "default": defaulted, "keyword's default": keyword_defaulted,
    "deep": lambda v: over({"a": [Plain((Data([v]),))]}), "class": lambda v: over(class_with(v)),
    "subclass": lambda v: over(Listed([v])),
    "decorator": decorated, "function's attribute": with_attribute, "inner code": nested, "module": module_with,
    "bound builtin": lambda v: over([v].count), "cached": lambda v: over(functools.lru_cache(over(v))),
}  # fmt: skip


@pytest.mark.parametrize("holder", HOLDERS)
def test_whatever_a_function_reaches_is_part_of_it(holder: str) -> None:
    hold = HOLDERS[holder]
    for name, (one, other) in VALUES.items():
        assert meaning([hold(one)]) == meaning([hold(one)]) != meaning([hold(other)]), name
        assert not pinned([hold(one)]).loose, name


def test_code_is_part_of_it_where_there_is_no_source_and_where_a_line_has_several() -> None:
    marks = {
        mark(typed(t))
        for t in ("state + x", "state + x.a", "state + x.b", "[v for v in x]", "[v + 1 for v in x]", "{1, 2}")
    }
    assert len(marks) == 6
    one, other, third = (lambda s, x: s + x), (lambda s, x: s - x), (lambda s, y: s + y)  # fmt: skip
    assert len({mark(one), mark(other), mark(third)}) == 3


def test_conditions_that_read_objects() -> None:
    def by(limit: Any) -> Any:
        def near(l: Any, r: Any) -> bool:
            if l.x > r.x:
                return bool(l.x - r.x <= limit.k)
            return bool(r.x - l.x <= limit.k)

        return near

    assert condition_mark(by(Plain(1))) == condition_mark(by(Plain(1))) != condition_mark(by(Plain(2)))

    def where(k: int) -> str:
        least = Plain(k)
        counted = plait.count_where(lambda t: bool(t.x) and t.x > least.k)
        query = plait.aggregate(plait.stream("a"), size=5, compute={"n": counted})
        return fingerprint(query, bind(query, {"a": SCHEMA}), layout.choose(query, (1, 1), 1, 1))

    assert where(1) == where(1) != where(2)


def test_what_names_itself_comes_to_an_end() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    node = Plain(1)
    node.next = node  # type: ignore[attr-defined]

    def even(state: Any, x: Any) -> Any:
        return odd(state, x - 1)

    def odd(state: Any, x: Any) -> Any:
        return even(state, x - 1)

    for value in (ring, node):
        assert mark(over(value)) == mark(over(value))
    assert mark(even) == mark(even)


def test_what_can_not_be_told_is_named() -> None:
    whole = types.ModuleType("mine")
    assert pinned([lambda s, x: whole]).loose == ["'whole' of <lambda>: the module 'mine', used as a whole"]
    lock = threading.Lock()
    (loose,) = pinned([over(lock)]).loose
    assert "'value' of <lambda>: a lock" in loose


SCRIPT = """
    import datetime, enum, functools, collections, math
    from dataclasses import dataclass, field
    import numpy as np
    class Colour(enum.Enum):
        RED = 1
    @dataclass
    class Conf:
        k: int = 3
        of: list = field(default_factory=list)
        seen = frozenset({"a", "b", "c", "d"})
        def times(self, x):
            return x * self.k if x in {"u", "v", "w"} else math.sqrt(x)
    WORDS = {"one", "two", "three", "four", "five"}
    def add(state, x, conf=Conf(), *, delta=datetime.timedelta(days=3)):
        return state + conf.times(x) + len(WORDS) + delta.days + Colour.RED.value
    SET = {functools.partial(add, delta=1), add}
    def both(state, x):
        return [f(state, x) for f in SET], {frozenset(WORDS): np.arange(5)}
"""


def test_it_is_the_same_in_every_process_and_place(tmp_path: Path) -> None:
    """Other hash seeds, another file, other lines; and another constant is another function there too."""
    script = textwrap.dedent(SCRIPT)
    texts = {"one": script, "moved": "# a line\n" * 7 + script, "other": script.replace("k: int = 3", "k: int = 4")}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    ask = "from plait.spark.plan.pin import pinned\nfrom plait.spark.plan.function_text import meaning\n"
    ask += "import one, moved, other\n"
    ask += "for m in (one, moved, other): print(pinned([m.add, m.both]).digest, meaning([m.add, m.both]).encode())"
    found = []
    for seed in (SEED, SEED + 1):
        paths = os.pathsep.join([str(Path(__file__).parents[2] / "src"), str(tmp_path)])
        environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": paths}
        done = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.splitlines())
    assert found[0] == found[1]
    one, moved, other = found[0]
    assert one == moved != other


def test_plain_functions_have_the_fingerprints_they_had() -> None:
    """Of checkpoints of earlier versions: source, and plain values from outside."""
    assert mark(over(1)) == "5f4ec037308827f6"
    assert mark(add_k) == "0888353ff99cfa43"
    assert mark(operator.add) == "1ac0518389db891a"
    assert mark(defaulted((1, "a"))) == "b9e3a33c3842023d"


def pins(**other: Any) -> Pins:
    return replace(Pins("f", "q", 1, 1, 2, "s", "u"), **other)


def test_a_checkpoint_of_other_functions_takes_a_word() -> None:
    accepted = {}
    cases = {
        "same": (pins(), pins()), "code": (pins(), pins(fingerprint="g")), "operator": (pins(), pins(functions="v")),
        "other": (pins(), pins(fingerprint="g", shape="t")), "loose": (pins(), pins(loose=("a lock",))),
        "query": (pins(), pins(fingerprint="g", shape="t", query="p")),
        "layout": (pins(), pins(fingerprint="g", shape="t", columns=2)),
    }  # fmt: skip
    for name, changed in itertools.product(cases, (False, True)):
        written, own = cases[name]
        try:
            check_pins(written, own, "c", changed=changed)
            accepted[name, changed] = ""
        except plait.RunError as error:
            accepted[name, changed] = str(error)
    silent = {key for key, words in accepted.items() if not words}
    assert silent == {("same", False)} | {(name, True) for name in ("same", "code", "operator", "loose")}
    assert "functions='changed'" in accepted["code", False]
    assert "functions='changed'" in accepted["operator", False]
    assert "depend on a lock" in accepted["loose", False]
    assert "another query" in accepted["other", True]
    assert "another query: it differs in query. It has 'q' and this one 'p'" in accepted["query", True]
    assert "another query: it differs in layout. It has [1, 1] and this one [1, 2]" in accepted["layout", True]


def test_a_cells_state_of_other_functions_takes_a_word() -> None:
    accepted = set()
    states = {"same": ("f", "s", "u"), "moved": ("f", "", ""), "code": ("g", "s", "u"), "operator": ("f", "s", "v"),
              "other": ("g", "t", "u"), "moved, other": ("g", "", "")}  # fmt: skip
    for name, changed in itertools.product(states, (False, True)):
        try:
            check_state(states[name], ("f", "s", "u"), changed=changed)
            accepted.add((name, changed))
        except plait.RunError:
            pass
    assert accepted == {("same", False), ("moved", False)} | {
        (name, True) for name in ("same", "moved", "code", "operator", "moved, other")
    }


@pytest.mark.parametrize("wheel", [True, False])
def test_a_package_is_installed_wherever_an_installer_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheel: bool
) -> None:
    """As `pip install --target` does, and clusters with folders of their own; without a wheel's papers it is the user's."""
    name = f"pack_{wheel}".lower()
    papers = tmp_path / f"{name}-1.0.dist-info"
    (tmp_path / name / "inner").mkdir(parents=True)
    papers.mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "inner" / "__init__.py").write_text("")
    (tmp_path / name / "inner" / "deep.py").write_text(
        "import threading\nLOCK = threading.Lock()\ndef f(s, x): return s\n"
    )
    (papers / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (papers / "RECORD").write_text(f"{name}/__init__.py,,\n{name}/inner/deep.py,,\n")
    if wheel:
        (papers / "WHEEL").write_text("Wheel-Version: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    deep = importlib.import_module(f"{name}.inner.deep")
    assert [installed(n) for n in (name, f"{name}.inner", f"{name}.inner.deep")] == [wheel] * 3
    assert (pinned([deep.f]).text == f"{name}.inner.deep.f") == wheel

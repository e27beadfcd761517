"""One pair's condition as Python text that Numba compiles well and plain Python runs just the same.

Every node becomes one assignment in the word that `words` chose, so that int32 arithmetic stays in int32. There is no
branch: logic is `&` and `|` over the two questions «is it true» and «is it false», which is all that three-valued logic
is, and NULL is neither. A float comparison is false for NaN by itself; `ne` is written `<` or `>` for that reason.

Example: `abs(l.x - r.a) <= 10` with x and a in int32 becomes

    t1 = int32(l0 - r0)
    t2 = t1 if t1 >= int32(0) else int32(-t1)

and the condition is `(t2 <= int32(10))`. l0 and r0 are the leaves of the pair. Where a leaf may be NULL, l0v is its mask,
and the condition is joined with `(l0v != uint8(0))`.

The same text is run by plain Python over thousands of random conditions (tests/core/join/test_random_conditions.py), so
what is held against the reference is what is compiled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.core.condition.bounds import WORDS
from plait.core.condition.evaluate import Array, as_float
from plait.core.condition.leaves import Shape
from plait.core.condition.terms import constant, sides_of
from plait.core.condition.words import Signature, Widths
from plait.query.condition.expression import COMPARISON, Binary, Case, Cast, Expr, Literal, Unary
from plait.query.condition.types import infer, is_float, is_int, promote

_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLIP = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


@dataclass(frozen=True)
class Value:
    """A number in the text: its name, machine word, type, and where it is not NULL ("" for everywhere).

    `text` is an expression of the text, cheap to repeat: a name, or a constant. `valid` is one too, "" for «never NULL»
    and "False" for «always NULL».
    """

    text: str
    word: str
    kind: str
    valid: str = ""
    constant: Any = None  # an integer constant, still to be given a word


class ScalarWriter:
    """Writes the condition over one pair; `names` maps (side, leaf) to the variable that holds the leaf.

    `lines` are the assignments so far, in order; `_values` remembers each node's name, so a part that is used twice is
    computed once. `suffix` keeps the names of several copies of the condition apart: a scan has one a probe. `codes` are
    those of text constants.
    """

    def __init__(self, shape: Shape, signature: Signature, names: dict[tuple[int, int], str], codes: dict[Any, int],
                 suffix: str = "") -> None:  # fmt: skip
        self.shape, self.signature, self.names, self.codes = shape, signature, names, codes
        self.widths = Widths(shape, signature)
        self.lines: list[str] = []
        self.suffix = suffix
        self.used: set[str] = set()  # functions of `PRELUDE` the text needs
        self._values: dict[Expr, Value] = {}
        self._conditions: dict[Expr, str] = {}  # of choices
        self._names = 0

    def condition(self) -> str:
        """The name or text of «the pair matches»; the assignments before it are in `lines`."""
        return _all([self.true(part) for part in self.shape.terms.pair]) or "True"

    def _let(self, text: str) -> str:
        """A name for a value, which is assigned in `lines`."""
        self._names += 1
        name = f"t{self._names}{self.suffix}"
        self.lines.append(f"{name} = {text}")
        return name

    # --- logic ---

    def true(self, expr: Expr) -> str:
        """Text that is true where the expression is known to be true. It is false for both false and unknown."""
        return self._holds(expr, True)

    def false(self, expr: Expr) -> str:
        """Text that is true where the expression is known to be false. Not the negation of `true`."""
        return self._holds(expr, False)

    def _holds(self, expr: Expr, wanted: bool) -> str:
        """Text of «the expression is known to be `wanted`». A leaf that is a boolean is stored as 0, 1 or 2 for NULL, so
        one comparison answers. not(a and b) is false where both are true: `wanted` turns over, and «and» changes places
        with «or». A negated comparison is the flipped one, since both are unknown together.
        """
        place = self.shape.leaf_of.get(expr)
        if place is not None:
            return f"({self.names[place]} == uint8({int(wanted)}))"
        if not sides_of(expr):
            value = constant(expr)
            known = value.kind == "bool" and (value.valid is None or bool(value.valid[0]))
            return str(known and bool(value.data[0]) == wanted)
        match expr:
            case Unary("not", arg):
                return self._holds(arg, not wanted)
            case Unary("is_null", arg):
                there = self._known(arg)
                return self._negated(there) if wanted else there
            case Binary("and" | "or" as op, a, b):
                parts = [self._holds(a, wanted), self._holds(b, wanted)]
                return (_all if (op == "and") == wanted else _any)(parts)
            case Binary(op, a, b) if op in COMPARISON:
                return self._comparison(op if wanted else _FLIP[op], a, b)
            case Cast(arg, "bool"):
                return self._to_bool(arg, wanted)
            case Case():
                return self._chosen(expr, [self._holds(value, wanted) for value in expr.values])
        raise AssertionError(expr)

    def _known(self, expr: Expr) -> str:
        """Where an expression is not NULL."""
        kind = infer(expr, self.shape.schemas)
        if kind == "null":
            return "False"
        if kind == "bool":
            return _any([self.true(expr), self.false(expr)])
        return self.value(expr).valid or "True"

    def _negated(self, text: str) -> str:
        return {"True": "False", "False": "True"}.get(text) or f"({text} == False)"

    def _comparison(self, op: str, a: Expr, b: Expr) -> str:
        """Text of «the comparison is known to be true». Truth values are equal if both are true or both are false. Text
        compares by codes. Two integers compare exactly; if one side is a float both are brought to the common type, and
        NaN makes every comparison false, which «unknown» has to be.
        """
        kinds = infer(a, self.shape.schemas), infer(b, self.shape.schemas)
        if "null" in kinds:
            return "False"
        if kinds[0] == "bool":
            # Each is used twice below: named, or the text doubles with every level.
            ta, fa, tb, fb = (self._let(t) for t in (self.true(a), self.false(a), self.true(b), self.false(b)))
            return f"(({ta} & {tb}) | ({fa} & {fb}))" if op == "eq" else f"(({ta} & {fb}) | ({fa} & {tb}))"
        x, y = self.value(a), self.value(b)
        if kinds[0] in ("text", "bytes"):
            return _all([x.valid, y.valid, f"({x.text} {_SIGNS[op]} {y.text})"])
        if is_int(kinds[0]) and is_int(kinds[1]):
            return _all([x.valid, y.valid, self._integer_comparison(op, x, y)])
        kind = promote(*kinds)
        fx, fy = self._float(x, kind), self._float(y, kind)
        if op == "ne":
            return _all([x.valid, y.valid, f"(({fx} < {fy}) | ({fx} > {fy}))"])
        return _all([x.valid, y.valid, f"({fx} {_SIGNS[op]} {fy})"])

    def _integer_comparison(self, op: str, x: Value, y: Value) -> str:
        words = {x.word, y.word}
        if words <= {"int32", "int64"}:
            word = "int64" if "int64" in words else "int32"
            return f"({self._integer(x, word)} {_SIGNS[op]} {self._integer(y, word)})"
        if x.word == "uint64" and y.word == "uint64":
            return f"({self._integer(x, 'uint64')} {_SIGNS[op]} {self._integer(y, 'uint64')})"
        # A signed with an unsigned number, exactly: a negative one is below, any other compares as unsigned.
        signed, unsigned, below = (
            (x, y, op in ("ne", "lt", "le")) if y.word == "uint64" else (y, x, op in ("ne", "gt", "ge"))
        )
        s, u = self._let(self._integer(signed, "int64")), self._integer(unsigned, "uint64")
        raised = f"uint64({s})"
        pair = (raised, u) if signed is x else (u, raised)
        at_least = f"(({s} >= int64(0)) & ({pair[0]} {_SIGNS[op]} {pair[1]}))"
        return f"(({s} < int64(0)) | {at_least})" if below else at_least

    def _to_bool(self, arg: Expr, wanted: bool) -> str:
        """A cast to a boolean. A number is true if it is not 0. NaN is neither: both tests are false for it."""
        if infer(arg, self.shape.schemas) == "bool":
            return self._holds(arg, wanted)
        x = self.value(arg)
        if is_int(x.kind):
            zero = f"{x.word}(0)"
            return _all([x.valid, f"({x.text} {'!=' if wanted else '=='} {zero})"])
        zero = f"{x.word}(0.0)"
        test = f"(({x.text} < {zero}) | ({x.text} > {zero}))" if wanted else f"({x.text} == {zero})"
        return _all([x.valid, test])

    # --- numbers ---

    def value(self, expr: Expr) -> Value:
        """An expression that is a number or text. Booleans have no value here, only `true` and `false`."""
        found = self._values.get(expr)
        if found is None:
            found = self._values[expr] = self._value(expr)
        return found

    def _value(self, expr: Expr) -> Value:
        kind = infer(expr, self.shape.schemas)
        place = self.shape.leaf_of.get(expr)
        if place is not None:
            side, k = place
            valid = f"({self.names[place]}v != uint8(0))" if self.signature.nullable[side][k] else ""
            word = self.signature.words[side][k]
            return Value(self.names[place], {"code": "int64"}.get(word, word), kind, valid)
        if not sides_of(expr):
            return self._constant(expr, kind)
        match expr:
            case Cast(arg, to):
                return self._cast(arg, to)
            case Unary(op, arg):
                return self._unary(op, self.value(arg), expr, kind)
            case Binary(op, a, b):
                x, y = self.value(a), self.value(b)
                if op in ("least", "greatest"):
                    return self._pick(op, x, y, expr, kind)
                return self._integers(op, x, y, expr, kind) if is_int(kind) else self._floats(op, x, y, kind)
            case Case():
                return self._case(expr, kind)
        raise AssertionError(expr)

    def _case(self, expr: Case, kind: str) -> Value:
        """The value of the first branch whose condition is true. All of them are computed, in one word: there is no branch."""
        values = [self.value(value) for value in expr.values]
        if kind == "null":
            return values[-1]
        if is_int(kind):
            word = self.widths.word(expr)
            texts = [self._integer(x, word) for x in values]
        elif is_float(kind):
            word = "float32" if kind == "float32" else "float64"
            texts = [f"{word}(0.0)" if x.kind == "null" else self._float(x, kind) for x in values]
        else:
            word = "int64"  # a code
            texts = ["int64(0)" if x.kind == "null" else x.text for x in values]
        valid = "" if not any(x.valid for x in values) else self._chosen(expr, [x.valid or "True" for x in values])
        return Value(self._chosen(expr, texts), word, kind, valid)

    def _chosen(self, expr: Case, texts: list[str]) -> str:
        """A name for the one of several texts that a choice takes; `texts` are by branch, then the last one's."""
        *branches, found = texts
        conditions = [self._taken(condition) for condition, _ in expr.branches]
        for condition, text in zip(reversed(conditions), reversed(branches), strict=True):
            found = f"({text} if {condition} else {found})"
        return self._let(found)

    def _taken(self, condition: Expr) -> str:
        """A name for «a branch's condition is true»: it is asked for more than once."""
        found = self._conditions.get(condition)
        if found is None:
            text = self.true(condition)
            found = self._conditions[condition] = text if text in ("True", "False") else self._let(text)
        return found

    def _constant(self, expr: Expr, kind: str) -> Value:
        """An expression without columns is computed now, by `evaluate`. An integer keeps its number, to be spelled in the
        word of whoever uses it; a NULL has the text of a number that nobody reads, and is never valid.
        """
        if isinstance(expr, Literal) and isinstance(expr.value, (str, bytes)):
            return Value(f"int64({self.codes[expr.value]})", "int64", kind)
        found = constant(expr)
        valid = "" if found.valid is None or found.valid[0] else "False"
        if is_int(kind) or kind == "null":
            number = int(found.data[0])
            word = self.widths.word(expr) if is_int(kind) else "int32"
            return Value(f"{word}({number})", word, kind, valid, number)
        word = "float32" if kind == "float32" else "float64"
        real = float(found.data[0])
        return Value(f"{word}({_number(real)})", word, kind, valid, real)

    def _integer(self, x: Value, word: str) -> str:
        """A number's text. In this word. A constant is spelled in it at once: `int64(5)`, not `int64(int32(5))`."""
        if x.constant is not None:
            return f"{word}({x.constant})"
        return x.text if x.word == word else f"{word}({x.text})"

    def _float(self, x: Value, kind: str) -> str:
        word = "float32" if kind == "float32" else "float64"
        if x.constant is not None:
            # The weak constant takes the type directly, without a step through another one.
            data = np.array([x.constant], dtype=object) if isinstance(x.constant, int) else np.array([x.constant])
            if x.word == "float32":
                data = data.astype(np.float32)
            return f"{word}({_number(float(as_float(Array(x.kind, data), word)[0]))})"
        return x.text if x.word == word else f"{word}({x.text})"

    def _unary(self, op: str, x: Value, expr: Expr, kind: str) -> Value:
        if kind == "null":
            return x
        if is_int(kind):
            word = self.widths.word(expr)
            a = self._integer(x, word)
            text = f"{word}(-{a})" if op == "neg" else f"{a} if {a} >= {word}(0) else {word}(-{a})"
            return Value(self._let(text), word, kind, x.valid)
        return Value(self._let(f"{'-' if op == 'neg' else 'abs'}({x.text})"), x.word, kind, x.valid)

    def _integers(self, op: str, x: Value, y: Value, expr: Expr, kind: str) -> Value:
        """Arithmetic of integers. `word(a + b)` and not `a + b`: Numba would widen int32 to int64 and halve the lanes.
        `words.choose` has proven that it fits. A zero divisor is replaced by 1 and makes the result NULL: no branch, and
        nothing raises. Python's `%` has the divisor's sign, SQL's the dividend's: `sqlmod` is made of Python's.
        """
        word = self.widths.word(expr)
        a, b, valid = self._integer(x, word), self._integer(y, word), _all([x.valid, y.valid])
        if op in ("add", "sub", "mul"):
            sign = {"add": "+", "sub": "-", "mul": "*"}[op]
            return Value(self._let(f"{word}({a} {sign} {b})"), word, kind, valid)
        b = self._let(b)
        valid = _all([valid, f"({b} != {word}(0))"])
        b = self._let(f"{b} if {b} != {word}(0) else {word}(1)")
        if op == "sqlmod":
            a = self._let(a)
            rest = self._let(f"{word}({a} % {b})")
            fix = f"({rest} != {word}(0)) & (({a} < {word}(0)) != ({b} < {word}(0)))"
            return Value(self._let(f"{word}({rest} - {b}) if {fix} else {rest}"), word, kind, valid)
        return Value(self._let(f"{word}({a} {'//' if op == 'floordiv' else '%'} {b})"), word, kind, valid)

    def _floats(self, op: str, x: Value, y: Value, kind: str) -> Value:
        word = "float32" if kind == "float32" else "float64"
        a, b, valid = self._float(x, kind), self._float(y, kind), _all([x.valid, y.valid])
        if op in ("sqldiv", "sqlmod"):
            b = self._let(b)
            valid = _all([valid, f"({b} != {word}(0.0))"])
        if op in ("add", "sub", "mul", "div", "sqldiv"):
            sign = {"add": "+", "sub": "-", "mul": "*"}.get(op, "/")
            return Value(self._let(f"{a} {sign} {b}"), word, kind, valid)
        function = {"floordiv": "float_floordiv", "mod": "float_mod", "sqlmod": "float_fmod"}[op]
        self.used.add(function)
        return Value(
            self._let(f"{word}({function}({a}, {b}, {word}(0.0), {word}(1.0), {word}(0.5)))"), word, kind, valid
        )

    def _pick(self, op: str, x: Value, y: Value, expr: Expr, kind: str) -> Value:
        """`least` and `greatest`, as `evaluate._pick` says: of a tie the same operand, NaN above all, NULL gives way."""
        if kind == "null":
            return x
        if is_int(kind):
            word = self.widths.word(expr)
            a, b = self._let(self._integer(x, word)), self._let(self._integer(y, word))
            second = f"({b} {'<' if op == 'least' else '>='} {a})"
        else:
            word = "float32" if kind == "float32" else "float64"
            a, b = self._let(self._float(x, kind)), self._let(self._float(y, kind))
            if op == "least":
                second = f"(({b} < {a}) | (({a} != {a}) & ({b} == {b})))"
            else:
                second = f"(({b} >= {a}) | ({b} != {b}))"
        if not x.valid and not y.valid:
            return Value(self._let(f"{b} if {second} else {a}"), word, kind)
        vx, vy = x.valid or "True", y.valid or "True"
        chosen = self._let(f"{b} if (({second} & {vy}) | ({vx} == False)) else {a}")
        return Value(chosen, word, kind, "" if "True" in (vx, vy) else self._let(_any([vx, vy])))

    def _cast(self, arg: Expr, to: str) -> Value:
        """A number in another type. Out of range gives NULL: a test `fit`, a harmless 0 in the value's place, and
        `valid`. high + 1 is a power of two, so the comparison with a float is exact.
        """
        kind = infer(arg, self.shape.schemas)
        expr = Cast(arg, to)
        if is_float(to):
            x = self._number_of(arg, kind)
            return Value(self._let(self._float(x, to)), to, to, x.valid)
        word = self.widths.word(expr)
        x = self._number_of(arg, kind)
        low, high = WORDS[to]
        if is_float(x.kind):
            whole = self._let(f"np.trunc({self._float(x, 'float64')})")
            inside = self._let(f"({whole} >= {float(low)!r}) & ({whole} < {float(high + 1)!r})")
            valid = _all([x.valid, inside])
            return Value(self._let(f"{word}({whole} if {inside} else 0.0)"), word, to, valid)
        tests = [f"({x.text} >= {x.word}({low}))"] if low >= WORDS[x.word][0] else []
        if high <= WORDS[x.word][1]:
            tests.append(f"({x.text} <= {x.word}({high}))")
        fit = self._let(_all(tests) or "True")
        return Value(self._let(f"{word}({x.text} if {fit} else {x.word}(0))"), word, to, _all([x.valid, fit]))

    def _number_of(self, arg: Expr, kind: str) -> Value:
        """A cast's operand as a number: a truth value counts 0 or 1."""
        if kind != "bool":
            return self.value(arg)
        true, false = self._let(self.true(arg)), self._let(self.false(arg))
        return Value(self._let(f"int32(1) if {true} else int32(0)"), "int32", "int32", f"({true} | {false})")


def _all(parts: list[str]) -> str:
    """Parts joined by `&`, "" standing for true."""
    kept = [part for part in parts if part not in ("", "True")]
    if "False" in kept:
        return "False"
    if not kept:
        return "True" if "True" in parts else ""
    return kept[0] if len(kept) == 1 else f"({' & '.join(kept)})"


def _any(parts: list[str]) -> str:
    """Parts joined by `|`; "" and "True" make the whole true, "False" drops out."""
    if "True" in parts or "" in parts:
        return "True"
    kept = [part for part in parts if part != "False"]
    if not kept:
        return "False"
    return kept[0] if len(kept) == 1 else f"({' | '.join(kept)})"


def _number(value: float) -> str:
    """A float as the text of the module has it: `inf` and `nan` are names there. `repr` gives back the same bits."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


#: What float text may call. Python's `%` and `//` on floats differ from NumPy's at the edges; these are NumPy's.
PRELUDE = {
    "float_fmod": """
@compiled
def float_fmod(a, b, zero, one, half):
    return np.fmod(a, b)
""",
    "float_mod": """
@compiled
def float_mod(a, b, zero, one, half):
    rest = np.fmod(a, b)
    if b == zero:
        return rest
    if rest != zero:
        if (b < zero) != (rest < zero):
            rest = rest + b
        return rest
    return np.copysign(zero, b)
""",
    "float_floordiv": """
@compiled
def float_floordiv(a, b, zero, one, half):
    if b == zero:
        return a / b
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    if rest != zero and ((b < zero) != (rest < zero)):
        quotient = quotient - one
    if quotient != zero:
        whole = np.floor(quotient)
        if quotient - whole > half:
            whole = whole + one
        return whole
    return np.copysign(zero, a / b)
""",
}

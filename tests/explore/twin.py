"""The twin: the same steps in plain Python, and the same source text turned into threads that can be stopped.

`load` reads the modules that hold shared-memory code and rewrites them, without changing a word on disk:

    a function marked `compiled`    becomes a generator that yields before every atomic step (`inner` ones, too)
    a call of such a function       becomes `yield from`
    a function marked `pure`        stays as it is
    `fence`, `pause`, `wake_all`    vanish: see below

so a scheduler (`tests.explore.schedule`) can let any thread take the next step. Memory is a list of ints, or anything that
is indexed like one. One step is one access, in one order that all threads agree on: **the twin explores sequentially
consistent executions only.** A fence does nothing there, and a missing one is not found; why each order weaker than
sequentially consistent suffices is argued beside the word it protects (`threads.gate.words`). What the twin can check of it
is that plain words are never touched by two threads without a release and an acquire between them: `races.Memory`.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

from tests.explore.schedule import Sleep

Words = Any  # a list of ints, or races.Memory


def load_acquire(words: Words, at: int) -> int:
    return int(words[at])


def store_release(words: Words, at: int, value: int) -> None:
    words[at] = value


def cas(words: Words, at: int, expected: int, value: int) -> bool:
    if words[at] != expected:
        return False
    words[at] = value
    return True


def fetch_add(words: Words, at: int, value: int) -> int:
    old = int(words[at])
    words[at] = old + value
    return old


def fence() -> None:
    """Nothing: steps are taken in one order that everyone sees."""


def pause() -> None:
    """Nothing: the scheduler decides who goes on."""


def sched_yield() -> None:
    """Nothing: the scheduler decides who goes on."""


def sleep_on(words: Words, at: int, expected: int, nanoseconds: int) -> Sleep:
    """What a sleeping thread yields: the scheduler lets it go on once the word has changed."""
    return Sleep(words, at, expected)


def wake_all(words: Words, at: int) -> None:
    """Nothing: a sleeper wakes because the word it sleeps on has changed."""


def trailing_zeros(value: int) -> int:
    return (value & -value).bit_length() - 1 if value else 64


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def pure(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


unsigned = int

_STEPS = {"load_acquire", "store_release", "cas", "fetch_add"}
_SILENT = {"fence", "pause", "sched_yield", "wake_all"}
STEP = "_step"  # a name that compiled code has not
_NAMES = (*_STEPS, *_SILENT, "sleep_on", "trailing_zeros", "compiled", "pure", "unsigned")

#: module name -> [(text that stands there exactly once, what to put in its place)]: planted faults.
Patches = Mapping[str, Sequence[tuple[str, str]]]


class Twin:
    """Twins of modules, loaded once each. Attribute access gives a module's names: `twin("plait.threads.gate.ring")["add"]`."""

    def __init__(self, package: str | tuple[str, ...], *, patches: Patches | None = None, steps: Any = None,
                 native: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        """`steps`: a module whose atomic steps are used instead of those above (`tests.explore.races`). `native`: what stands
        for names of `threads.atomics.native`, which the twin has no word for: what lies at an address, the clock.
        """
        self.package = package
        self.steps = {name: getattr(steps, name, globals()[name]) for name in _NAMES} | {"inner": compiled}
        self.steps |= dict(native or {})
        self.patches = dict(patches or {})
        self._modules: dict[str, dict[str, Any]] = {}
        self._generators: dict[str, set[str]] = {}

    def __call__(self, name: str) -> dict[str, Any]:
        if name not in self._modules:
            self._load(name)
        return self._modules[name]

    def _load(self, name: str) -> None:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(name)
        text = Path(found.origin).read_text(encoding="utf-8")
        for old, new in self.patches.get(name, ()):
            if text.count(old) != 1:
                raise ValueError(f"{name}: the text to replace stands there {text.count(old)} times: {old!r}")
            text = text.replace(old, new)
        tree = _parsed(text)
        space: dict[str, Any] = {"__name__": f"twin of {name}", "__builtins__": builtins}
        body, generators = self._bind_imports(tree, space)
        own = {node.name for node in body if isinstance(node, ast.FunctionDef) and _is_compiled(node)}
        constants = {k: v for k, v in space.items() if type(v) is int}
        exec(_rewritten(text, found.origin, frozenset(generators | own), tuple(constants.items())), space)
        self._modules[name], self._generators[name] = space, own

    def _bind_imports(self, tree: ast.Module, space: dict[str, Any]) -> tuple[list[ast.stmt], set[str]]:
        """Import from twins what is shared-memory code, and from the real modules the rest."""
        rest: list[ast.stmt] = []
        generators: set[str] = set()
        for node in tree.body:
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                rest.append(node)
            elif self._names_modules(node):
                for alias in node.names:
                    name, own = f"{node.module}.{alias.name}", alias.asname or alias.name
                    space[own] = SimpleNamespace(**self(name))
                    generators |= {f"{own}.{each}" for each in self._generators[name]}
            elif node.module.startswith("plait.threads.atomics"):
                space.update({alias.name: self.steps[alias.name] for alias in node.names})
            elif node.module.startswith(self.package):
                module = self(node.module)
                for alias in node.names:
                    space[alias.asname or alias.name] = module[alias.name]
                    if alias.name in self._generators[node.module]:
                        generators.add(alias.asname or alias.name)
            elif node.module != "__future__":
                real = importlib.import_module(node.module)
                space.update({alias.asname or alias.name: getattr(real, alias.name) for alias in node.names})
        return rest, generators

    def _names_modules(self, node: ast.ImportFrom) -> bool:
        """Whether these are modules that have a twin: `from plait.threads.gate import epochs`."""
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        if not hasattr(importlib.import_module(str(node.module)), "__path__"):
            return False
        return all(name.startswith(self.package) and importlib.util.find_spec(name) is not None for name in names)


_parsed = functools.cache(ast.parse)


@functools.cache
def _rewritten(text: str, path: str, generators: frozenset[str], constants: tuple[tuple[str, int], ...]) -> CodeType:
    """A module without its imports, made for the scheduler. Kept: of a planted fault all modules but one are the same."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom) or node.module is None]
    made = _Rewriter(set(generators), dict(constants)).visit(tree)
    return compile(ast.fix_missing_locations(made), path, "exec")


def _is_compiled(node: ast.FunctionDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id in ("compiled", "inner") for mark in node.decorator_list)


class _Rewriter(ast.NodeTransformer):
    """Turns marked functions into generators. Constants become literals, which halves the time of a step."""

    def __init__(self, generators: set[str], constants: dict[str, int]) -> None:
        self.generators, self.constants, self.inside = generators, constants, False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.inside, outer = _is_compiled(node), self.inside
        self.generic_visit(node)
        if self.inside:
            # A function without a step of its own must be a generator too.
            node.body.append(ast.parse("if False:\n    yield").body[0])
        self.inside = outer
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return node  # module constants stay names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self.constants:
            return ast.copy_location(ast.Constant(self.constants[node.id]), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not self.inside or not isinstance(node.func, ast.Name | ast.Attribute):
            return node
        name = ast.unparse(node.func)
        if name in self.generators:
            return ast.copy_location(ast.YieldFrom(node), node)
        if name in ("sleep_on", "nap"):
            return ast.copy_location(ast.Yield(node), node)
        if name in _SILENT:
            return ast.copy_location(ast.Constant(None), node)
        if name in _STEPS:
            # (s := (words, at, ...), (yield s), step(*s))[2]: say what it is about, stop, then take the step.
            known = ast.Name(STEP, ast.Load())
            said = ast.NamedExpr(ast.Name(STEP, ast.Store()), ast.Tuple(node.args, ast.Load()))
            taken = ast.Call(node.func, [ast.Starred(known, ast.Load())], [])
            three = ast.Tuple([said, ast.Yield(known), taken], ast.Load())
            return ast.copy_location(ast.Subscript(three, ast.Constant(2), ast.Load()), node)
        return node

"""A user's functions rewritten for Numba: the same text, with what it yields and returns made one type.

A generator that yields rows and timers has no one type, so `yield x` becomes (0, 0, columns ...) for a row and
(1, at, zeros ...) for a timer; a route's `plait.ALL` and None become codes. What can't be rewritten says why.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from plait.operators.buckets import EVERY, NONE
from plait.predicates.opaque import globals_used
from plait.query.operator import ALL, timer


class NotCompiled(Exception):
    """Why a function runs in plain Python."""


class Source:
    """A user's function as a syntax tree, and the columns of its tuple that it reads."""

    def __init__(self, role: str, function: Callable[..., Any]) -> None:
        if not isinstance(function, FunctionType):
            raise NotCompiled(f"{role} is a {type(function).__name__}, not a function")
        if function.__closure__:
            raise NotCompiled(f"{role} uses variables of the function around it")
        try:
            text = textwrap.dedent(inspect.getsource(function))
            found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
        except (OSError, TypeError, SyntaxError) as error:
            raise NotCompiled(f"the text of {role} is not to be had alone; write it with def") from error
        if len(found) != 1:
            raise NotCompiled(f"{role} holds functions of its own, or stands on a line with others; write it with def")
        self.role, self.function = role, function
        node = found[0]
        if isinstance(node, ast.Lambda):
            node = ast.fix_missing_locations(ast.FunctionDef(role, node.args, [ast.Return(node.body)], [], lineno=1))
        self.node: ast.FunctionDef = node
        self.yields = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(node))
        self.parameters = [a.arg for a in node.args.args]
        if role == "process" and not self.yields and any(isinstance(n, ast.Return) and n.value for n in ast.walk(node)):
            raise NotCompiled("process returns its outputs; only those that it yields are compiled")
        row = self.parameters[0] if role == "route" else self.parameters[1] if role == "process" else None
        self.row = row
        self.reads = {name for n in ast.walk(node) if (name := _read(n, row)) is not None}


def _read(node: ast.AST, row: str | None) -> str | None:
    """The column that `t.column` or `t["column"]` reads."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == row:
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == row:
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return node.slice.value
        raise NotCompiled("a column is named by something other than text")
    return None


class Writer(ast.NodeTransformer):
    """The functions' text for the module."""

    def __init__(self, names: list[str], kinds: list[str], zeros: str) -> None:
        self.names, self.kinds, self.zeros = names, kinds, zeros
        self._uses: dict[str, str] = {}
        self.source: Source

    def uses(self) -> str:
        return "".join(f"{line}\n" for line in self._uses.values())

    def function(self, source: Source) -> str:
        self.source = source
        tree = self.visit(source.node)
        tree.name, tree.decorator_list, tree.returns = source.role, [], None
        for argument in tree.args.args:
            argument.annotation = None
        self._note(source.function)
        return f"\n\n@njit(nogil=True, error_model='python')\n{ast.unparse(ast.fix_missing_locations(tree))}\n"

    def _note(self, function: FunctionType) -> None:
        for name, value in globals_used(function).items():
            if value is ALL or value is timer or getattr(value, "ALL", None) is ALL:
                continue
            if isinstance(value, ModuleType):
                line = f"import {value.__name__} as {name}"
            elif isinstance(value, (bool, int, float, str)):
                line = f"{name} = {value!r}"
            else:
                raise NotCompiled(f"{self.source.role} uses {name!r}, a {type(value).__name__}")
            if self._uses.setdefault(name, line) != line:
                raise NotCompiled(f"{name!r} is not the same in two functions")

    def _value(self, node: ast.expr) -> Any:
        """What a name, or a module's attribute, stands for."""
        scope = self.source.function.__globals__
        if isinstance(node, ast.Name):
            return scope.get(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return getattr(scope.get(node.value.id), node.attr, None)
        return None

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        name = _read(node, self.source.row)
        if name is None:
            return self.generic_visit(node)
        return ast.copy_location(ast.Attribute(node.value, name, ast.Load()), node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self.source.role != "route":
            return self.generic_visit(node)
        return ast.copy_location(ast.Return(self._bucket(node.value)), node)

    def _bucket(self, value: ast.expr | None) -> ast.expr:
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return ast.Constant(NONE)
        if self._value(value) is ALL:
            return ast.Constant(EVERY)
        if isinstance(value, ast.IfExp):
            return ast.IfExp(self.visit(value.test), self._bucket(value.body), self._bucket(value.orelse))
        if isinstance(value, (ast.Tuple, ast.List, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            raise NotCompiled("route names several buckets")
        return ast.Call(ast.Name("bucket_number", ast.Load()), [self.visit(value)], [])

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        raise NotCompiled(f"{self.source.role} yields from another")

    def visit_Yield(self, node: ast.Yield) -> ast.AST:
        value = node.value
        if isinstance(value, ast.Call) and self._value(value.func) is timer:
            made = ast.parse(f"(1, whole(0), {self.zeros})" if self.zeros else "(1, whole(0))", mode="eval").body
            assert isinstance(made, ast.Tuple)
            made.elts[1] = ast.Call(ast.Name("whole", ast.Load()), [self.visit(value.args[0])], [])
            return ast.copy_location(ast.Yield(made), node)
        if isinstance(value, ast.Dict):
            given = {k.value: v for k, v in zip(value.keys, value.values, strict=True) if isinstance(k, ast.Constant)}
            if set(given) != set(self.names) or len(value.keys) != len(self.names):
                raise NotCompiled(f"{self.source.role} yields a dict that does not name every column")
            items = [given[name] for name in self.names]
        elif isinstance(value, ast.Tuple) and len(value.elts) == len(self.names):
            items = value.elts
        else:
            raise NotCompiled(f"{self.source.role} yields something that is no row spelled out")
        call = {"int": "whole", "float": "real", "bool": "truth"}
        checked = [
            ast.Call(ast.Name(call[kind], ast.Load()), [self.visit(item)], [])
            for item, kind in zip(items, self.kinds, strict=True)
        ]
        return ast.copy_location(ast.Yield(ast.Tuple([ast.Constant(0), ast.Constant(0), *checked], ast.Load())), node)

    @staticmethod
    def loop(call: str, stores: str) -> str:
        """The text that goes through what a function yields."""
        text = f"""
        for item in {call}:
            if item[0] == 1:
                if item[1] < earliest or not timed:
                    told[0], told[1], told[2] = 1, item[1], earliest
                    return places[:, :count], out_i[:, :count], out_f[:, :count]
                heapq.heappush(timers, (item[1], int64(bucket)))
                continue
            if count == places.shape[1]:
                places, out_i, out_f = grown(places), grown(out_i), grown_f(out_f)
            places[0, count], places[1, count], places[2, count] = now, rank, bucket
            places[3, count], places[4, count] = index, cause
{stores}            count += 1
            index += 1
"""
        return text

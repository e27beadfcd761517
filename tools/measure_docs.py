"""How many lines explain the code: docstrings and comments on lines of their own, for each line of code.

    python tools/measure_docs.py              one line a package, and the whole
    python tools/measure_docs.py --modules    one line a module, those that explain least first

A line of a docstring counts if something stands on it. A line of code is any other line that is not blank and no comment; a
comment behind code is part of its line. Texts that are no docstrings (generated source, SQL) are code.
"""

import argparse
import ast
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src" / "plait"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def counted(path: Path) -> tuple[int, int]:
    """Lines that explain and lines of code of a module."""
    lines = path.read_text(encoding="utf-8").splitlines()
    told: set[int] = set()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            told.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    with tokenize.open(path) as file:
        tokens = list(tokenize.generate_tokens(file.readline))
    told.update(t.start[0] for t in tokens if t.type == tokenize.COMMENT and not t.line[: t.start[1]].strip())
    filled = {number for number, line in enumerate(lines, 1) if line.strip()}
    return len(told & filled), len(filled - told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT, help="what to measure; src/plait unless given")
    parser.add_argument("--modules", action="store_true", help="one line a module")
    given = parser.parse_args()
    found = {path.relative_to(given.folder): counted(path) for path in sorted(given.folder.rglob("*.py"))}
    sums: dict[str, list[tuple[int, int]]] = {}
    for path, counts in found.items():
        name = str(path) if given.modules else path.parts[0]
        sums.setdefault(name, []).append(counts)
    rows = [(name, sum(d for d, _ in each), sum(c for _, c in each)) for name, each in sums.items()]
    rows = [row for row in rows if row[1] or row[2]]
    if given.modules:
        rows.sort(key=lambda row: row[1] / max(row[2], 1))
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    for name, told, code in rows:
        print(f"{name:45} {told:6} / {code:6} = {told / max(code, 1):.3f}")


if __name__ == "__main__":
    main()

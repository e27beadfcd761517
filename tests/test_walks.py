"""The walks of ARCHITECTURE.md: its lists name modules that are there, and its table says what the lists come to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
MOST = (16, 8)  # modules and returns: the aim

ROW = re.compile(r"^\| (\w[^|]* on (?:threads|Spark)) \| (\d+) \| (\d+) \|$", re.MULTILINE)
#: A visit: its number, whether it is a return, the module, and three to twelve words on what happens there.
VISIT = re.compile(r"^(\d+)\. (again )?`([\w/]+\.py)` (.+)$")


class Visit(NamedTuple):
    number: int
    again: bool
    module: str
    what: str


def visits(lines: str) -> list[Visit]:
    """The lines of one list that begin with a number."""
    found = []
    for line in lines.splitlines():
        if re.match(r"\d+\.", line):
            match = VISIT.match(line)
            assert match is not None, f"no visit: {line}"
            found.append(Visit(int(match[1]), match[2] is not None, match[3], match[4]))
    return found


def wrong(walk: list[Visit]) -> list[str]:
    """What is wrong with a list, a line each."""
    found, seen = [], set()
    for at, visit in enumerate(walk):
        if visit.number != at + 1:
            found.append(f"{visit.number} stands at place {at + 1}")
        if visit.again != (visit.module in seen):
            found.append(
                f"{visit.number}: {visit.module} {'was not visited before' if visit.again else 'again, not marked'}"
            )
        if at and walk[at - 1].module == visit.module:
            found.append(f"{visit.number}: {visit.module} was not left")
        if not (ROOT / "src" / "plait" / visit.module).is_file():
            found.append(f"{visit.number}: there is no {visit.module}")
        if not 3 <= len(visit.what.split()) <= 12:
            found.append(f"{visit.number}: {len(visit.what.split())} words")
        seen.add(visit.module)
    return found


def counted(walk: list[Visit]) -> tuple[int, int]:
    return len({visit.module for visit in walk}), sum(visit.again for visit in walk)


#: By name: what the table says, and the list.
TABLE = {name: (int(modules), int(returns)) for name, modules, returns in ROW.findall(TEXT)}
LISTS = {
    part.split("\n", 1)[0]: visits(part.split("\n## ", 1)[0])
    for part in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]
}


def test_every_walk_has_its_list() -> None:
    assert len(TABLE) == 6
    assert set(LISTS) == set(TABLE)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_in_order(name: str) -> None:
    assert wrong(LISTS[name]) == []


@pytest.mark.parametrize("name", LISTS)
def test_the_table_says_what_the_list_comes_to(name: str) -> None:
    assert TABLE[name] == counted(LISTS[name])
    assert all(found <= most for found, most in zip(TABLE[name], MOST, strict=True))


def test_a_fault_would_be_seen() -> None:
    text = """
1. `threads/run.py` it begins here now
2. `threads/engine.py` then it goes on
3. `threads/run.py` and back it comes
5. again `threads/nowhere.py` twice
"""
    walk = visits(text)
    assert counted(walk) == (3, 1)
    assert wrong(walk) == [
        "3: threads/run.py again, not marked",
        "5 stands at place 4",
        "5: threads/nowhere.py was not visited before",
        "5: there is no threads/nowhere.py",
        "5: 1 words",
    ]
    assert wrong(visits("1. `threads/run.py` it begins here\n2. again `threads/run.py` without having left")) == [
        "2: threads/run.py was not left"
    ]
    with pytest.raises(AssertionError, match="no visit"):
        visits("1. threads/run.py without its marks")

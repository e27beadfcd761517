"""Every message that plait raises on purpose has a test, and reads like something a person would say."""

import ast
import builtins
import pickle
import re
import traceback
from pathlib import Path

import pytest
from tests.query import refused_conditions, refused_queries, refused_rows, refused_sql, refused_streams, refused_values
from tests.query.refusal import Refusal

import plait
from plait.errors import BehindError, DataError, LateError, PendingError, PlaitError, QueryError, RunError

SOURCE = Path(plait.__file__).parent
TABLES = (refused_values, refused_streams, refused_queries, refused_conditions, refused_rows, refused_sql)
REFUSALS = [
    pytest.param(refusal, id=f"{table.__name__.rpartition('.')[2]}: {what}")
    for table in TABLES
    for what, refusal in table.REFUSALS.items()
]
MODULES = [
    SOURCE / "errors.py",
    SOURCE / "order.py",
    SOURCE / "schema.py",
    *sorted((SOURCE / "query").rglob("*.py")),
    *sorted((SOURCE / "reference").glob("*.py")),
]

Site = tuple[str, int]  # a module, and the line of a `raise` in it


def refused(refusal: Refusal) -> PlaitError:
    with pytest.raises(PlaitError) as caught:
        refusal.build()
    return caught.value


@pytest.mark.parametrize("refusal", REFUSALS)
def test_message(refusal: Refusal) -> None:
    """It names the value and helps, reads well, and crosses processes: one test, as some queries take long to be refused."""
    error = refused(refusal)
    names_the_value_and_helps(error, refusal)
    reads_well(error)
    crosses_processes(error)


def names_the_value_and_helps(error: PlaitError, refusal: Refusal) -> None:
    assert type(error) is refusal.error
    assert refusal.fact in error.fact
    assert refusal.why in error.why
    assert refusal.do in error.do
    assert refusal.why or refusal.do, "the table must say what the message explains"


def reads_well(error: PlaitError) -> None:
    message = str(error)
    assert message.endswith((".", "?"))
    assert "  " not in message
    assert "\n" not in message
    assert not re.search(r"\b(\w+) \1\b", message.replace("= =", "=")), "a word stands twice"
    assert not re.search(r"[.,:;] ?[.,:;]( |$)", message.replace("...", "")), "two stops"
    for part in (error.why, error.do):
        # A sentence gets a capital letter: a part that begins with a name would be misspelt by it.
        assert not re.match(r"\w+[=_.(]", part)
    assert error.why or error.do


def crosses_processes(error: PlaitError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.fact, again.why, again.do) == (str(error), error.fact, error.why, error.do)


# --- no message without a test ------------------------------------------------------------------------------


def raise_sites(module: Path) -> dict[Site, int]:
    """Where the module raises an error of plait's: the line a `raise` begins on, and the one it ends on."""
    sites = {}
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            called = node.exc.func
            name = called.id if isinstance(called, ast.Name) else ""
            # What is left: plait's own classes, and functions that make one of them.
            if name != "Untraceable" and not hasattr(builtins, name):
                sites[str(module.relative_to(SOURCE)), node.lineno] = node.end_lineno or node.lineno
    return sites


def site_of(error: PlaitError, sites: dict[Site, int]) -> Site | None:
    """The `raise` that the error came from: the innermost frame inside the modules under test."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path in MODULES:
            name, line = str(path.relative_to(SOURCE)), frame.lineno or 0
            return next((site for site, end in sites.items() if site[0] == name and site[1] <= line <= end), None)
    return None


def test_every_raise_has_a_test() -> None:
    sites = {site: end for module in MODULES for site, end in raise_sites(module).items()}
    assert len(sites) > 100  # the search itself works
    reached = {site_of(refused(refusal), sites) for table in TABLES for refusal in table.REFUSALS.values()}
    missing = sorted(f"src/plait/{module}:{line}" for module, line in sites.keys() - reached)
    assert not missing, "add what raises these to a table in tests/query/refused_*.py: " + ", ".join(missing)


def test_the_check_would_see_a_new_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new.py").write_text(
        "if x:\n    raise QueryError(\n        x)\nraise _mismatch(x)\nraise ValueError(x)\nraise Untraceable(x)\n"
    )
    monkeypatch.setitem(raise_sites.__globals__, "SOURCE", tmp_path)
    assert raise_sites(tmp_path / "new.py") == {("new.py", 2): 3, ("new.py", 4): 4}


# --- the classes --------------------------------------------------------------------------------------------


def test_a_message_has_a_fact_a_reason_and_a_remedy() -> None:
    error = QueryError("x=5 is no text", why="names are text", do="Pass a name")
    assert str(error) == "x=5 is no text. Names are text. Pass a name."
    assert (error.fact, error.why, error.do) == ("x=5 is no text", "names are text", "Pass a name")


def test_a_message_keeps_its_own_end() -> None:
    assert str(QueryError("There is no 'ts'", do="did you mean 'time'?")) == "There is no 'ts'. Did you mean 'time'?"
    assert str(QueryError("Stop!", why="It is enough.")) == "Stop! It is enough."


@pytest.mark.parametrize(
    ("kind", "bases"),
    [
        (QueryError, (PlaitError, ValueError)),
        (DataError, (PlaitError, ValueError)),
        (LateError, (DataError,)),
        (BehindError, (DataError,)),
        (PendingError, (DataError,)),
        (RunError, (PlaitError, RuntimeError)),
    ],
)
def test_errors_are_caught_by_what_they_are(kind: type[PlaitError], bases: tuple[type[Exception], ...]) -> None:
    assert all(issubclass(kind, base) for base in bases)
    assert getattr(plait, kind.__name__) is kind

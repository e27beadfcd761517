"""`import plait` is quick because it leaves the heavy libraries to whoever needs them."""

import json
import subprocess
import sys

HEAVY = {"duckdb", "llvmlite", "matplotlib", "numba", "pandas", "polars", "py4j", "pyspark"}


def loaded_by(statement: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter loads for one statement."""
    code = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {name.partition(".")[0] for name in json.loads(run.stdout)}


def test_import_plait_loads_nothing_heavy() -> None:
    assert loaded_by("import plait") & HEAVY == set()


def test_the_check_would_see_a_heavy_import() -> None:
    assert "pandas" in loaded_by("import pandas")


def test_java_detection_needs_nothing_but_the_standard_library() -> None:
    loaded = loaded_by("import runpy; runpy.run_path('src/plait/java.py')")
    assert loaded <= set(sys.stdlib_module_names)

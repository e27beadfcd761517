"""What makes Spark quicker where driver, workers and checkpoint are on one machine. Each part does without if it must.

Two things cost a local micro-batch more than its join. Hadoop without its native library forks a `chmod` for every
checkpoint file, fourteen a batch: `LocalFiles.java` sets permissions by a system call, compiled once where there is a
`javac`. And every Python process of Spark's imports pyspark from a zip, which Python compiles anew each time, about a
second: a launcher takes the zip off the path of those that have pyspark installed.

Where it runs: on the driver, in `plait.spark.session`, before the JVM starts: class path and interpreter can't be changed
after that. What is made is kept in plait's cache folder under a name that has a digest of its content, so another version
makes another one, and two processes at once do no harm. Held by tests/spark/test_local.py.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from plait.core.machine.folder import cache_folder, own

_SOURCE = Path(__file__).with_name("LocalFiles.java")

_LAUNCHER = """#!/bin/sh
# Written by plait. Spark puts a zip of pyspark before everything; this interpreter has it installed, and compiled.
kept= IFS=:
set -f
for place in $PYTHONPATH; do
  case $place in */pyspark.zip | */py4j-*-src.zip) ;; *) kept=$kept${{kept:+:}}$place ;; esac
done
PYTHONPATH=$kept
unset IFS kept place
set +f
export PYTHONPATH
# The process that is only asked for a cell's state variables tells of each of its steps.
case "$*" in *transform_with_state_driver_worker*) exec >/dev/null ;; esac
exec '{python}' "$@"
"""


def is_local(master: str) -> bool:
    """Whether driver and workers are one machine."""
    return master.startswith("local")


def file_system() -> dict[str, str]:
    """Settings for a local file system that does not fork; none without a Java compiler."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    found = sorted(jars.glob("hadoop-client-api-*.jar"))
    compiler = shutil.which("javac")
    if compiler is None or not found:
        return {}
    name = hashlib.sha256(_SOURCE.read_bytes() + found[0].name.encode()).hexdigest()[:16]
    try:
        classes = own(cache_folder()) / f"java-{name}"
    except OSError:  # others may have written what lies there
        return {}
    if not classes.exists() and not _compile(compiler, found[0], classes):
        return {}
    return {
        "spark.hadoop.fs.file.impl": "plait.LocalFiles",
        "spark.driver.extraClassPath": str(classes),
        "spark.executor.extraClassPath": str(classes),
    }


def _compile(compiler: str, jar: Path, classes: Path) -> bool:
    """Compile the Java class into a folder that appears whole. False if it can't be done; then Spark does without."""
    temporary = classes.with_name(f".{classes.name}.{secrets.token_hex(4)}")
    try:
        temporary.mkdir(parents=True)
        command = [compiler, "-nowarn", "-proc:none", "-cp", str(jar), "-d", str(temporary), str(_SOURCE)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        os.replace(temporary, classes)
    except (OSError, subprocess.SubprocessError):
        shutil.rmtree(temporary, ignore_errors=True)
        return classes.exists()  # another process may have been quicker
    return True


def python() -> str:
    """The interpreter for Spark's Python processes: this one, by way of the launcher where pyspark is installed.

    Without a POSIX shell, or where the folder can't be written, it is the plain interpreter.
    """
    import pyspark

    if os.name != "posix" or "'" in sys.executable or not Path(pyspark.__file__).is_file():
        return sys.executable
    text = _LAUNCHER.format(python=sys.executable)
    try:
        launcher = own(cache_folder()) / f"python-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    except OSError:
        return sys.executable
    if not launcher.exists():
        temporary = launcher.with_name(f".{launcher.name}.{secrets.token_hex(4)}")
        try:
            temporary.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text)
            temporary.chmod(0o755)
            os.replace(temporary, launcher)
        except OSError:
            return sys.executable
    return str(launcher)

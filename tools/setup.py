"""Makes .venv hold plait and all it needs; does nothing, quickly, when it already does.

The stamp is removed first and written last: an interrupted set-up leaves none, and the next run starts over.
It records where the environment was made, since scripts in a moved one point nowhere; its Python, since an
upgrade of the system's replaces that under it; and a hash of both pyproject.toml, which is all that editable
installs depend on. A .venv without a stamp is built anew: it belongs to make.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "plait-stamp.json"
LOG = VENV / "setup.log"
LOG_LINES_SHOWN = 25


def main(python_name: str) -> int:
    # Two makes at once must not build the same directory; the lock goes when the process does.
    with open(__file__, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another set-up of .venv is running; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        stamped, present = read_stamp(), describe()
        if stamped == present:
            return 0
        STAMP.unlink(missing_ok=True)
        fresh = any(stamped.get(key) != present[key] for key in ("root", "python"))
        if not install(python_name, fresh=fresh):
            return 1
        unfinished = STAMP.with_suffix(".tmp")
        unfinished.write_text(json.dumps(describe()), encoding="utf-8")
        unfinished.rename(STAMP)
        return 0


def describe() -> dict[str, str]:
    """What a stamp written now would say."""
    files = (ROOT / "pyproject.toml", ROOT / "benchmarks" / "pyproject.toml")
    pyproject = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return {"root": str(ROOT), "python": venv_version(), "pyproject": pyproject}


def read_stamp() -> dict[str, str]:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def venv_version() -> str:
    """Asked of the environment's own Python, which may be a link to nothing."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        run = subprocess.run([VENV_PYTHON, "-I", "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return run.stdout.strip()


def install(python_name: str, *, fresh: bool) -> bool:
    started = time.monotonic()
    if importlib.util.find_spec("ensurepip"):
        options: list[str] = []
        pip: list[str | Path] = [VENV_PYTHON, "-I", "-m", "pip"]
    elif importlib.util.find_spec("pip"):
        # Debian splits ensurepip off into python3-venv; a pip from outside can install into the environment.
        options = ["--without-pip"]
        pip = [sys.executable, "-m", "pip", "--python", VENV_PYTHON]
    else:
        package = f"{Path(python_name).name}-venv"
        say(f"{python_name} has neither ensurepip nor pip. Install them: apt-get install {package}")
        return False
    if fresh:
        say("Installing plait and its dependencies into .venv (about a minute, once) ...")
        if VENV.exists():
            shutil.rmtree(VENV)
        if not logged([sys.executable, "-m", "venv", *options, VENV]):
            return False
    else:
        say("pyproject.toml has changed: bringing .venv up to date ...")
    packages = ["install", "--quiet", "--disable-pip-version-check"]
    packages += ["--editable", f"{ROOT}[dev,bench]", "--editable", f"{ROOT / 'benchmarks'}"]
    if not logged([*pip, *packages]):
        return False
    say(f"Installed in {time.monotonic() - started:.0f} s.")
    return True


def logged(command: list[str | Path]) -> bool:
    """Runs a command that should be silent; what it said is shown only if it fails."""
    VENV.mkdir(exist_ok=True)
    # Packages on PYTHONPATH would count as installed.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with LOG.open("wb") as log:
        run = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
    if run.returncode == 0:
        return True
    lines = LOG.read_text(encoding="utf-8", errors="replace").splitlines()
    say(*lines[-LOG_LINES_SHOWN:])
    say(f"The set-up failed (exit code {run.returncode}); the whole log is in {LOG.relative_to(ROOT)}.")
    return False


def say(*lines: str) -> None:
    # To stderr, so that the output of `make demo` can be piped.
    for line in lines:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except KeyboardInterrupt:
        say("The set-up was interrupted; the next run starts it over.")
        sys.exit(130)

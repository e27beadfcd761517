#!/bin/sh
# Finds a Python that is new enough and hands over to setup.py, which needs one to be read at all.
set -eu
cd "$(dirname "$0")/.."

for python in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        exec "$python" tools/setup.py "$python"
    fi
done

first=${PYTHON:-python3}
found=$("$first" -c 'import platform; print("is " + platform.python_version())' 2>/dev/null) || found="does not run"
if [ "$(uname)" = Darwin ]; then
    command="brew install python@3.12"
elif command -v apt-get >/dev/null 2>&1; then
    command="apt-get install python3.12 python3.12-venv"
elif command -v dnf >/dev/null 2>&1; then
    command="dnf install python3.12"
else
    command="see https://www.python.org/downloads/"
fi
echo "plait needs Python 3.11 or newer, and $first $found. Install one: $command" >&2
exit 1

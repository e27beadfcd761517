"""Is there a Java that Spark can run on? No dependencies: the Makefile runs this file by itself."""

import os
import re
import shutil
import subprocess
import sys

OLDEST = 17


def missing() -> str | None:
    """One line with the fact and the command that mends it, or None if Java is there and new enough."""
    home = os.environ.get("JAVA_HOME")
    # Spark's launcher looks nowhere else once JAVA_HOME is set, so neither does this.
    path = os.path.join(home, "bin", "java") if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "PATH"
    version = _major_version(path) if path else None
    if version is None:
        fact = f"there is none in {where}"
    elif version < OLDEST:
        fact = f"the Java in {where} is version {version}"
    else:
        return None
    then = ", then unset JAVA_HOME or point it there" if home else ""
    return f"Spark needs Java {OLDEST} or newer, and {fact}. Install it: {_install_command()}{then}"


def _major_version(path: str) -> int | None:
    """The 17 of `openjdk version "17.0.15"`, the 8 of `java version "1.8.0_392"`; None if it does not run."""
    try:
        # macOS has a stub called java that only says where to get one, and fails.
        run = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found[1]) if found else None


def _install_command() -> str:
    """The command that installs Java with the package manager that is here."""
    if sys.platform == "darwin":
        return "brew install openjdk@17"
    for tool, command in (
        ("apt-get", "apt-get install openjdk-17-jre-headless"),
        ("dnf", "dnf install java-17-openjdk-headless"),
        ("apk", "apk add openjdk17-jre-headless"),
        ("pacman", "pacman -S jre17-openjdk-headless"),
        ("zypper", "zypper install java-17-openjdk-headless"),
        ("brew", "brew install openjdk@17"),
    ):
        if shutil.which(tool):
            return command
    return "see https://adoptium.net"


if __name__ == "__main__":
    line = missing()
    if line:
        print(line, file=sys.stderr)

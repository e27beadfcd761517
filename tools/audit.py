"""Known vulnerabilities of what plait depends on, as PyPI tells them; the versions are those of this environment.

PyPI's JSON of a release lists them, as OSV has them: what `pip-audit` asks by default. Fails if there is one that is not in
`IGNORED`. Where PyPI can't be asked (no network, a mirror without this service), one line says so, and nothing fails: a machine
without network must be able to run everything else.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

#: Vulnerabilities that don't concern plait, and why.
IGNORED: dict[str, str] = {}

URL = "https://pypi.org/pypi/{name}/{version}/json"
TIMEOUT_S = 20

Fetch = Callable[[str], Any]


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def dependencies(root: str = "plait") -> dict[str, str]:
    """What a package needs, and what that needs in turn, with the versions that are installed; extras apart."""
    found: dict[str, str] = {}
    wanted = [root]
    while wanted:
        name = wanted.pop()
        for line in requires(name) or ():
            required, _, marker = line.partition(";")
            inner = re.match(r"[\w.-]+", required)
            if inner is None or "extra" in marker or inner[0].lower() in found:
                continue
            try:
                found[inner[0].lower()] = version(inner[0])
            except PackageNotFoundError:  # of another platform
                continue
            wanted.append(inner[0])
    return dict(sorted(found.items()))


def audit(packages: dict[str, str], fetch: Fetch, say: Callable[[str], Any]) -> int:
    """0 if nothing is known against these versions, or nothing could be asked; else 1."""
    unasked: dict[str, str] = {}
    failed = False
    for name, number in packages.items():
        try:
            known = fetch(URL.format(name=name, version=number)).get("vulnerabilities", [])
        except (OSError, ValueError) as error:  # no network, no such page, no JSON
            unasked[name] = str(error)
            continue
        for each in known:
            if each.get("withdrawn"):
                continue
            ids = [each["id"], *each.get("aliases", ())]
            told = f"{name} {number}: {' = '.join(ids)}: {each.get('summary') or each.get('details', '')[:200]}"
            reason = next((IGNORED[one] for one in ids if one in IGNORED), None)
            if reason is not None:
                say(f"ignored, since {reason}: {told}")
                continue
            failed = True
            say(f"{told} (mended in {', '.join(each.get('fixed_in') or ['no version'])})")
    if unasked:
        first = next(iter(unasked.values()))
        say(
            f"PyPI could not be asked about {len(unasked)} of {len(packages)} packages ({first}): nothing is known of these"
        )
    if not failed and len(unasked) < len(packages):
        say(f"Nothing is known against the versions of {len(packages) - len(unasked)} packages")
    return int(failed)


if __name__ == "__main__":
    sys.exit(audit(dependencies(), fetched, print))

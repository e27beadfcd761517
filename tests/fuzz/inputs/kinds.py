"""All doors, by name."""

from __future__ import annotations

from tests.fuzz.inputs import described, files, given, stored, texts

KINDS = {kind.name: kind for kind in (*texts.KINDS, *files.KINDS, *described.KINDS, *stored.KINDS, *given.KINDS)}

"""What an editor is told about a user's program: mypy finds its types, and all of its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

HERE = Path(__file__).parent


@pytest.mark.again
def test_a_users_program() -> None:
    """`warn_unused_ignores` is part of strict: a mistake that is not seen any more is an error, too."""
    said, failed, status = api.run(
        [
            str(HERE / "typed_program.py"),
            "--strict",
            "--follow-imports=silent",
            "--ignore-missing-imports",
            f"--config-file={HERE.parents[1] / 'pyproject.toml'}",
        ]
    )
    assert status == 0, said + failed

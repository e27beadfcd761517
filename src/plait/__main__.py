"""`python -m plait`: the command, where nothing was installed."""

from __future__ import annotations

from plait.cli.main import main

main()

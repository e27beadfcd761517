"""The command. Exit codes: 0 done, 1 `verify` found a difference, 2 bad input or usage, 3 a fault of plait's own.

Commands are the modules of `cli.commands`: whatever stands there is one, under its module's name, and is loaded when it is asked
for. A module without a `command` of its name fails at import, by name.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback

import click

import plait
from plait.cli import commands
from plait.cli.exit_codes import BAD_INPUT, DONE, FAULT, INTERRUPTED
from plait.errors import PlaitError


class Commands(click.Group):
    """The modules of a package as commands.

    A module is imported when its command is asked for, so one command does not load what another one needs. For the list
    of commands Click asks each for its help, so all of them are imported there.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        """The modules of `cli.commands`, by name."""
        return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """A module's command; None if there is no such module. One that is not whole is refused, with what it lacks."""
        if name not in self.list_commands(context):
            return None
        found = vars(importlib.import_module(f"{commands.__name__}.{name}")).get("command")
        if not isinstance(found, click.Command):
            raise ImportError(f"the command {name!r} has no `command`: see plait.cli.main")
        if found.name != name:
            raise ImportError(f"the command {name!r} calls itself {found.name!r}: see plait.cli.main")
        if not found.get_short_help_str():
            raise ImportError(f"the command {name!r} has no help: see plait.cli.main")
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(plait.__version__, prog_name="plait")
def cli() -> None:
    """Deterministic windowed joins and aggregates over many streams."""


def main() -> None:
    """Entry point: errors on purpose are one message and exit code 2; anything else is a fault of plait's.

    A pipe that was closed is no error of ours, and no reason for a stack: it is what `plait run ... | head` does.
    """
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(BAD_INPUT)
    except PlaitError as error:
        click.echo(f"plait: {error}", err=True)
        sys.exit(BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        click.echo("plait: interrupted; nothing was left under the final name", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away: what a pipe into `head` does.
        sys.stderr.close()
        sys.exit(DONE)
    except Exception:
        traceback.print_exc()
        click.echo("plait: this is a fault of plait's own; please report it with the lines above", err=True)
        sys.exit(FAULT)


if __name__ == "__main__":
    main()

"""The `agentq` command."""

import sys

_LIBRARIES = ("click", "rich", "typer")


def main() -> None:
    """Run the command line and exit with its status.

    The libraries it is made of are an extra; without them it says how to get them.
    """
    try:
        from agentq.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _LIBRARIES:
            raise
        sys.exit(_missing(error.name))
    except KeyboardInterrupt:
        sys.exit(130)
    app(prog_name="agentq")


def _missing(library: str) -> int:
    sys.stderr.write(
        f"agentq: the command line needs {library}, which is not installed; "
        "install it with: pip install 'agentq-py[cli]'\n"
    )
    return 2

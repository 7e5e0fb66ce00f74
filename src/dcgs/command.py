"""The entry point of the command ``dcgs``. It imports little, so that Ctrl-C is handled from the start.

Until the supervisor has been forked, signals wait: the supervisor then takes them. Python's default would
raise KeyboardInterrupt in the midst of an import, and print a traceback.
"""

# The module signal itself imports enum and others first, and a Ctrl-C meanwhile would print a traceback.
import _signal  # type: ignore[import-not-found]


def command() -> None:
    """Run the command under a supervisor, and exit with its status."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGINT, _signal.SIGTERM))
    from dcgs.processes.supervisor import run_supervised

    run_supervised(_main)


def _main() -> int:
    from dcgs.cli import run_as_command

    return run_as_command()

"""The entry point of the command ``dcgs``. It imports little, so that Ctrl-C is handled from the start.

Until the supervisor has been forked, a signal ends the process at once, in the kernel's own way: Python's
default would raise KeyboardInterrupt in the midst of an import, and print a traceback.
"""

# The module signal itself imports enum and others first, and a Ctrl-C meanwhile would print a traceback.
import _signal


def command() -> None:
    """Run the command under a supervisor, and exit with its status."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from dcgs.supervisor import run_supervised

    run_supervised(_main)


def _main() -> int:
    from dcgs.cli import run_as_command

    return run_as_command()

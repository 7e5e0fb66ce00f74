"""``python -m dcgs``: the command, for where its script is not on the path."""

import sys

from dcgs.cli import main

if __name__ == "__main__":
    sys.exit(main())

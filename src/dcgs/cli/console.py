"""What the command prints on: names, labels and ids of users cannot command the terminal."""

from __future__ import annotations

from typing import IO, Any, final

from rich.console import Console
from rich.text import Text

from dcgs.runtime.errors import printable


@final
class EscapingConsole(Console):
    """A console that shows control characters escaped; colors and the like are its own only.

    All texts that it is given, also those in tables and of progress, pass through ``render_str``. Rich has no
    hook that sees them before they are laid out, so this method is overridden.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        super().__init__(file=file, markup=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text), **how)

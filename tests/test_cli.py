"""The command, as it is typed."""

from __future__ import annotations

import pytest

from dcgs.cli import main


@pytest.mark.parametrize("argv", [[], ["nothing"], ["fit"], ["show", "--top", "0", "model"]])
def test_invalid_arguments_print_the_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: dcgs" in capsys.readouterr().err

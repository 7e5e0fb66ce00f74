"""``python -m dcgs``: the command, for where its script is not on the path."""

from dcgs.command import command

if __name__ == "__main__":
    command()

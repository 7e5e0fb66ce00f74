"""``python -m dcgs``: the command dcgs, if its script is not on the path."""

from dcgs.command import command

if __name__ == "__main__":
    command()

"""Every ``--help`` of the command, found by walking through its parsers; and ``--version``."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

import dcgs
from dcgs import registry
from dcgs.cli import main, make_parser
from dcgs.learn.files.specs import PROBLEMS


def parsers(parser: argparse.ArgumentParser, argv: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the arguments that lead to each parser."""
    yield argv
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from parsers(child, (*argv, name))


ALL = list(parsers(make_parser()))


def output_of(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_walk_finds_every_job() -> None:
    jobs = {" ".join(argv) for argv in ALL}
    assert {"", "fit", "predict", "show", "reproduce", "report", "bench", "bench rounds"} <= jobs


@pytest.mark.parametrize("argv", ALL, ids=" ".join)
def test_every_help_has_a_description_and_examples_of_its_own_job(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    text = output_of([*argv, "--help"], capsys)
    start, _, examples = text.partition("examples:\n")
    assert len(start.split("\n\n")[1].split()) >= 4  # the first paragraph after the usage
    assert " ".join(["dcgs", *argv]) in examples


@pytest.mark.parametrize("argv", ALL, ids=" ".join)
def test_every_option_has_a_help_text(argv: tuple[str, ...]) -> None:
    parser = make_parser()
    for name in argv:
        (jobs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = jobs.choices[name]
    options = [a for a in parser._actions if not isinstance(a, argparse._SubParsersAction)]
    assert [option.dest for option in options if not option.help] == []


@pytest.mark.parametrize("argv", [argv for argv in ALL if argv], ids=" ".join)
def test_every_example_of_a_help_can_be_parsed(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, examples = output_of([*argv, "--help"], capsys).partition("examples:\n")
    continued = " " * 10  # what a command above does
    for line in examples.splitlines():
        if line.startswith(continued) or not line.startswith(" "):
            continue
        words = shlex.split(line.partition(" dcgs ")[2].partition("  ")[0])
        assert words, line
        make_parser().parse_args(words)


@pytest.mark.parametrize(
    "typed", [[], ["--version"], ["--help", "fit"], ["report", "folder"], ["bench", "step"]]
)
def test_the_help_is_the_same_whichever_job_has_its_options(typed: list[str]) -> None:
    assert make_parser(typed).format_help() == make_parser().format_help()


def imported(*typed: str) -> set[str]:
    """Return the modules that are imported before the job that was typed is run."""
    program = f"import sys; from dcgs.cli import make_parser; make_parser({list(typed)}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_fit_imports_neither_the_benchmarks_nor_what_few_sets_need() -> None:
    """Each takes a fifth of a second, in each process of a run."""
    modules = imported("fit")
    assert {"dcgs.cli.fit", "scipy.sparse"} <= modules
    assert {"dcgs_bench", "scipy.optimize", "matplotlib", "mpi4py"} & modules == set()


def test_listing_jobs_imports_none_of_them() -> None:
    modules = imported("--help")
    assert {name for name in modules if name.startswith("dcgs_bench")} == {"dcgs_bench", "dcgs_bench.jobs"}
    assert {"dcgs.cli.fit", "dcgs.cli.show", "matplotlib"} & modules == set()


def test_the_help_of_fit_names_every_problem_set_and_method(capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(["fit", "--help"], capsys)
    names = (*PROBLEMS, *registry.sets(), *registry.methods(), "agent-000.npz")
    assert [name for name in names if name not in text] == []


def test_version_prints_the_version_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert output_of(["--version"], capsys) == f"dcgs {dcgs.__version__}\n"

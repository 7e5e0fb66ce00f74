"""A set, a method, an inner solver and a loss of another package work wherever built-in ones do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import get_args

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from toy_extension.inner import OpenLoopCG
from toy_extension.losses import LogCosh
from toy_extension.methods import DiffusionFW
from toy_extension.over_mpi import METHODS, objectives, solve
from toy_extension.sets import NonnegativeBox

import dcgs
import test_docs
import test_fit_docs
import test_help
import test_reference
import test_repository
from dcgs import registry
from dcgs.inner import check_inner
from dcgs.methods.fast.fast_dcgs import InnerName

EXTENSION = Path(__file__).parent / "extension"
DCGS = Path(sys.executable).with_name("dcgs")
MPIEXEC = Path(sys.executable).with_name("mpiexec")
CLASSES = (
    "toy_extension.losses:LogCosh --set toy_extension.sets:NonnegativeBox --set-option height=1.5 "
    "--method toy_extension.methods:DiffusionFW --method-option shift=3"
)


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def fit(arguments: str, folder: Path, *launcher: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``dcgs fit`` in a folder that holds the extension and its data."""
    shutil.copytree(EXTENSION / "toy_extension", folder / "toy_extension", dirs_exist_ok=True)
    np.save(folder / "data.npy", data())
    return run(*launcher, DCGS, "fit", *arguments.split(), folder=folder)


def data() -> NDArray[np.float64]:
    rng = np.random.default_rng(8)
    A = rng.standard_normal((12, 4))
    return np.column_stack([A, A @ [0.5, 2.0, 0.0, -1.0]])


def models(folder: Path) -> NDArray[np.float64]:
    return np.stack([np.load(folder / f"agent-00{i}.npz")["x"] for i in range(3)])


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_minimize_takes_them_and_approaches_the_optimum(method: dcgs.Method) -> None:
    best = dcgs.minimize(
        objectives(), NonnegativeBox((4,), 1.0), nx.path_graph(3), dcgs.NIDS(), iterations=2000, every=0
    )
    history = solve(method, dcgs.Lockstep()).history
    start, f_star = history.mean_loss[0], best.history.mean_loss[-1]
    # Six iterations take every method at least half of the way from the start to the optimum.
    assert history.mean_loss[-1] - f_star <= 0.5 * (start - f_star)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(method: dcgs.Method, tmp_path: Path) -> None:
    X, graph = NonnegativeBox((4,), 1.0), nx.path_graph(3)
    save, resume = dcgs.Checkpoint(tmp_path, every=2), dcgs.Checkpoint(tmp_path, every=2, resume=True)
    fixed = replace(method, schedule=dcgs.Theorem1(horizon=9)) if isinstance(method, dcgs.DCGS) else method
    dcgs.minimize(objectives(), X, graph, fixed, iterations=4, checkpoint=save)
    resumed = dcgs.minimize(objectives(), X, graph, fixed, iterations=9, checkpoint=resume)
    uninterrupted = dcgs.minimize(objectives(), X, graph, fixed, iterations=9)
    assert resumed.about["checkpoint"]["resumed"] == 4
    assert resumed.agents.tobytes() == uninterrupted.agents.tobytes()


def test_results_over_mpi_are_equal_to_the_bit() -> None:
    done = run(MPIEXEC, "-n", "3", sys.executable, "-m", "toy_extension.over_mpi", folder=EXTENSION)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dcgs_fit_finds_them_in_the_current_folder(tmp_path: Path) -> None:
    done = fit(f"{CLASSES} --data data.npy --agents 3 --iterations 20 --held-out 0 --out m", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = np.split(data(), 3)
    by_hand = dcgs.minimize(
        [dcgs.Objective(LogCosh(part[:, 4]), dcgs.matrix_map(part[:, :4])) for part in parts],
        NonnegativeBox((4,), 1.5),
        nx.cycle_graph(3),
        DiffusionFW(shift=3),
        iterations=20,
        every=0,
    )
    np.testing.assert_array_equal(models(tmp_path / "m"), by_hand.agents)
    summary = json.loads((tmp_path / "m" / "summary.json").read_text())
    assert summary["set"] == {"name": "toy_extension.sets:NonnegativeBox", "height": 1.5}
    assert summary["method"] == "DiffusionFW(shift=3)"
    shown = run(DCGS, "predict", "m", "--data", "data.npy", "--out", "p.csv", folder=tmp_path)
    assert shown.returncode == 0, shown.stdout + shown.stderr


def test_dcgs_fit_takes_an_inner_solver_of_another_package_over_mpi_too(tmp_path: Path) -> None:
    words = "lasso --data data.npy --agents 3 --radius 2 --method dcgs --inner toy_extension.inner:OpenLoopCG"
    assert fit(f"{words} --iterations 5 --out one", tmp_path).returncode == 0
    several = fit(f"{words} --iterations 5 --out several", tmp_path, MPIEXEC, "-n", "3")
    assert several.returncode == 0, several.stdout + several.stderr
    assert models(tmp_path / "one").tobytes() == models(tmp_path / "several").tobytes()
    summary = json.loads((tmp_path / "one" / "summary.json").read_text())
    assert "OpenLoopCG" in summary["method"]


def test_dcgs_fit_gives_options_to_a_loss_an_inner_solver_and_a_set_that_takes_any_number(
    tmp_path: Path,
) -> None:
    words = (
        "toy_extension.losses:Expectile --loss-option tau=0.8 --data data.npy --agents 3 --iterations 5 "
        "--set toy_extension.sets:NonnegativeBox --set-option height=0 --method dcgs "
        "--inner toy_extension.inner:OpenLoopCG --inner-option max_steps=7 --out m"
    )
    done = fit(words, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "m" / "summary.json").read_text())
    assert "OpenLoopCG(max_steps=7)" in summary["method"]
    assert models(tmp_path / "m").tolist() == [[0.0] * 4] * 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("lasso --method adam", "the method must be one of dcgs, dfw, fastdcgs, "),
        ("lasso --method nowhere:Adam", "importing nowhere raised ModuleNotFoundError: No module named"),
        (
            "lasso --method toy_extension.methods:Nothing",
            "must be in toy_extension.methods; there is no such name.",
        ),
        (
            "lasso --method toy_extension.sets:NonnegativeBox",
            "must be a class derived from dcgs.Method; it is",
        ),
        (
            "lasso --method dcgs:Method",
            "must define all of dcgs.Method; incompatibility, program is missing.",
        ),
        ("lasso --set toy_extension.sets:NonnegativeBox", "needs --set-option height=…: a finite number."),
        (
            "lasso --set toy_extension.sets:NonnegativeBox --set-option height=none",
            "height must be a finite number; got 'None'.",
        ),
        (
            "lasso --radius 1 --method toy_extension.methods:DiffusionFW --method-option speed=3 --rounds 1",
            "the method toy_extension.methods:DiffusionFW takes the options shift; got speed=3:",
        ),
        (
            "lasso --set toy_extension.sets:NonnegativeBox --set-option height=1 --cap 0.5",
            "unrecognized arguments: --cap 0.5. Options of a class from another package are given as "
            "--set-option KEY=VALUE",
        ),
        (
            "toy_extension.losses:LogCosh --loss-option tau=1 --radius 1",
            "LogCosh takes the options none; got t",
        ),
        (
            "toy_extension.losses:Expectile --radius 1",
            "the loss toy_extension.losses:Expectile takes the options tau; got none: missing a required",
        ),
        (
            "lasso --radius 1 --loss-option delta=1",
            "--loss-option must be left out for lasso, whose loss has",
        ),
        ("lasso --radius 1 --inner-option max_steps=3", "--inner-option needs the name of an inner solver;"),
        (
            "lasso --radius 1 --method dcgs --inner cg --inner-option speed=3 --rounds 1",
            "the inner solver cg takes the options step, max_steps; got speed=3:",
        ),
        (
            "lasso --radius 1 --method-option stops_itself=False",
            "Give --rounds, --iterations, --seconds or --lmo-calls; or --measure.",
        ),
        ("squares", "the problem must be one of lasso, least-squares, logistic, completion, huber, "),
        ("toy_extension.losses:Image", "must be a class derived from dcgs.Loss; it is"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_with_a_sentence(
    words: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from dcgs.cli import main

    monkeypatch.chdir(tmp_path)
    np.save("data.npy", data())
    with pytest.raises(SystemExit) as ended:
        sys.exit(main([*["fit", "--data", "data.npy", "--agents", "3", "--out", "m"], *words.split()]))
    assert ended.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_the_registry_has_every_class_by_the_name_people_type() -> None:
    """Names may be added; none may be renamed or go."""
    assert list(registry.methods()) == sorted(registry.methods())
    assert set(registry.methods()) >= {
        "dcgs",
        "dfw",
        "fastdcgs",
        "nids",
        "pgextra",
        "primaldual",
        "projectedagd",
    }
    assert set(registry.inner_solvers()) >= {
        "block",
        "cg",
        "corrective",
        "exact",
        "newton",
        "pcg",
        "projected",
    }
    assert set(registry.losses()) >= {"huber", "logistic", "squared"}
    assert list(registry.sets()) == sorted(registry.sets())
    assert set(registry.sets()) >= {
        "birkhoff",
        "box",
        "group-l1",
        "hull",
        "k-sparse",
        "l1",
        "l2",
        "linf",
        "nuclear",
        "polytope",
        "simplex",
        "spectraplex",
    }


def test_every_name_of_an_inner_solver_is_one_that_methods_take() -> None:
    for name in registry.inner_solvers():
        check_inner(name)
    assert set(get_args(InnerName)) == {"auto", "oracle", *registry.inner_solvers()}


def test_an_inner_solver_may_be_given_to_every_method_that_has_one() -> None:
    assert dcgs.FastDCGS(inner=OpenLoopCG()).inner == OpenLoopCG()


SOURCE = Path(dcgs.__file__).parent


@pytest.mark.parametrize(
    ("name", "package"),
    [("LInfBall", "sets"), ("KSparseBall", "sets"), ("BirkhoffPolytope", "sets"), ("Polytope", "sets")],
)
def test_a_built_in_class_is_listed_in_its_package_and_nowhere_else_in_the_source(
    name: str, package: str
) -> None:
    files = {path for path in SOURCE.rglob("*.py") if re.search(rf"\b{name}\b", path.read_text())}
    module = Path(sys.modules[getattr(dcgs, name).__module__].__file__ or "")
    assert files == {module, SOURCE / package / "__init__.py"}


@pytest.mark.parametrize("name", registry.sets())
def test_the_guide_has_a_row_for_every_set_with_its_options(name: str) -> None:
    guide = (Path(__file__).parent.parent / "docs" / "guide.md").read_text()
    made = registry.sets()[name]
    flags = [f"--{o.name}" if o.required else f"[--{o.name}]" for o in made.command_options()]
    rows = [line for line in guide.splitlines() if line.startswith(f"| `{made.__name__}(")]
    assert [row.rstrip(" |").endswith(f"`{' '.join([name, *flags])}`") for row in rows] == [True]


@pytest.mark.parametrize("name", [made.__name__ for made in registry.methods().values()])
def test_the_page_of_methods_describes_every_method(name: str) -> None:
    assert f"`{name}`" in METHODS_PAGE.read_text()


METHODS_PAGE = Path(__file__).parent.parent / "docs" / "methods.md"


def add_to_package(made: type, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a class be one that ``dcgs.sets`` or ``dcgs.methods`` exports."""
    for module in (import_module(f"dcgs.{package}"), dcgs):
        monkeypatch.setattr(module, made.__name__, made, raising=False)
        monkeypatch.setattr(module, "__all__", [*module.__all__, made.__name__])


def need_a_file(made: type, name: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the files that the tests of lists of names miss a class in."""
    checks = {
        "docs/api.md": test_docs.test_every_public_name_has_a_docstring_with_an_example,
        "src/dcgs": test_repository.test_every_public_name_exists,
        "tests/test_extension.py": test_the_registry_has_every_class_by_the_name_people_type,
        "src/dcgs/cli": lambda: test_help.test_the_help_of_fit_names_every_problem_set_and_method(capsys),
        "docs/fit.md": test_fit_docs.test_the_methods_that_the_page_names_are_those_of_the_command,
        "tests/set_cases.py": test_reference.test_every_set_is_in_the_tables,
    }
    if issubclass(made, dcgs.ConvexSet):
        checks["docs/guide.md"] = lambda: test_the_guide_has_a_row_for_every_set_with_its_options(name)
    else:
        checks["docs/methods.md"] = lambda: test_the_page_of_methods_describes_every_method(made.__name__)
    missing = set()
    for file, check in checks.items():
        try:
            check()
        except AssertionError:
            missing.add(file)
    return missing


def test_a_set_in_the_package_needs_its_rows_in_two_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its module, the list of the package and the change log these are five; see CONTRIBUTING.md."""
    monkeypatch.setattr(NonnegativeBox, "name", "nonnegative-box")
    add_to_package(NonnegativeBox, "sets", monkeypatch)
    missing = need_a_file(NonnegativeBox, "nonnegative-box", capsys)
    assert missing == {"tests/set_cases.py", "docs/guide.md"}


def test_a_method_in_the_package_needs_its_section_in_one_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its module, the list of the package, two files of its reference and the change log are six."""
    add_to_package(DiffusionFW, "methods", monkeypatch)
    assert "diffusionfw" in registry.methods()
    assert need_a_file(DiffusionFW, "diffusionfw", capsys) == {"docs/methods.md"}

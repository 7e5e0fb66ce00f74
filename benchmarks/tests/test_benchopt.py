"""The benchmark for benchopt: its files follow benchopt's interface.

benchopt is not needed for the tests. Where it is not installed, a stand-in has its three base classes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dcgs
from dcgs import registry

FOLDER = Path(__file__).parents[1] / "benchopt"
DATASETS = sorted((FOLDER / "datasets").glob("*.py"))
SOLVERS = sorted((FOLDER / "solvers").glob("*.py"))


class Base:
    """A class of benchopt: parameters become attributes."""

    def __init__(self, **parameters: Any) -> None:
        vars(self).update(parameters)


@pytest.fixture(autouse=True)
def _benchopt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    if find_spec("benchopt") is None:
        stand_in = ModuleType("benchopt")
        vars(stand_in).update(dict.fromkeys(("BaseObjective", "BaseDataset", "BaseSolver"), Base))
        monkeypatch.setitem(sys.modules, "benchopt", stand_in)
    for name in ("benchmark_utils", "benchmark_utils.method_solver"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import_module("benchmark_utils.method_solver")


def load(path: Path, name: str, **parameters: Any) -> Any:
    """Return an instance of the class of a file, with the first value of every parameter."""
    spec = spec_from_file_location(f"of_benchopt_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    made = getattr(module, name)
    first: dict[str, Any] = {}
    for names, values in getattr(made, "parameters", {}).items():
        keys = [each.strip() for each in names.split(",")]
        first |= dict(zip(keys, values[0] if len(keys) > 1 else values[:1], strict=True))
    return made(**first | parameters)


@pytest.mark.parametrize("path", DATASETS, ids=lambda path: path.stem)
def test_every_data_set_gives_objectives_and_a_set_or_says_what_is_missing(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DCGS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    dataset = load(path, "Dataset")
    data = dataset.get_data()
    objective = load(FOLDER / "objective.py", "Objective")
    skipped, reason = objective.skip(**data)
    assert dataset.name == path.stem
    assert skipped == (path.stem == "movielens")
    assert ("DCGS_DATA" in reason) == skipped
    assert skipped or all(f.shape == data["X"].shape for f in data["objectives"])


@pytest.mark.parametrize("path", SOLVERS, ids=lambda path: path.stem)
def test_every_solver_runs_and_its_result_is_measured_on_everyones_data(path: Path) -> None:
    small = {"agents": 4, "samples": 20, "features": 30}
    data = load(FOLDER / "datasets" / "lasso.py", "Dataset", **small).get_data()
    objective = load(FOLDER / "objective.py", "Objective")
    objective.set_data(**data)
    solver = load(path, "Solver")
    assert solver.skip(**objective.get_objective()) == (False, None)
    solver.set_objective(**objective.get_objective())
    solver.run(0)
    assert objective.evaluate_result(**solver.get_result())["value"] == 1.0
    solver.run(5)
    measured = objective.evaluate_result(**solver.get_result())
    history = dcgs.minimize(data["objectives"], data["X"], solver.graph, solver.make(), iterations=5).history
    for name in ("worst_loss", "local_loss", "mean_loss", "gap", "disagreement"):
        # Both sum the same terms, in another order.
        np.testing.assert_allclose(measured[name], history.columns()[name][-1], rtol=1e-9, atol=1e-9)
    for name in ("rounds", "bytes", "lmo_calls", "projections"):
        assert measured[name] == history.columns()[name][-1]
    assert type(solver.make()).__name__ == solver.name


def test_every_solver_is_a_method_and_those_of_the_paper_are_there() -> None:
    methods = {made.__name__ for made in registry.methods().values()}
    assert {"FastDCGS", "DCGS", "DFW"} <= {load(path, "Solver").name for path in SOLVERS} <= methods

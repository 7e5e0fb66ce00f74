"""Fits of two versions beside each other: ``python tests/golden.py OLD_SOURCES [NAME ...]``.

OLD_SOURCES is a folder ``src`` of another version, such as 0.8.0:

    mkdir old && git archive 4137a6b src | tar x -C old && python tests/golden.py old/src

Each command runs with the sources of either version, with the same options in full: graph, gap, folds, rows
held out. A line for each command says whether models, radii, rounds and bytes are equal, and how far apart
they are if not. Models of the other version must give the same predictions in both.
"""

from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import dcgs
from test_fit_docs import make_files, table

NEW = Path(dcgs.__file__).parent.parent
HOSPITALS = "logistic --data hospital-{agent}.csv --target ill --graph cycle --gap 1e-3"
LASSO = "lasso --data data.svm --agents 10 --graph cycle --radius 40 --gap 1e-3"
FILMS = "completion --data ratings.csv --agents 5 --graph cycle --gap 1e-3 --ridge 5"
HOUSES = "least-squares --data houses.csv.gz --target price --agents 4 --graph cycle --gap 1e-3"
# Every FastDCGS of other versions chooses its form by other rules: these commands name what must be the same.
FITS = {
    "four hospitals": f"{HOSPITALS} --radius 3",
    "four hospitals, auto": f"{HOSPITALS} --radius auto --folds 1",
    "four hospitals, five folds": f"{HOSPITALS} --radius auto --folds 5",
    "three classes": f"{HOSPITALS.replace(' ill', ' ward')} --radius 3",
    "three classes, auto, balanced": (
        f"{HOSPITALS.replace(' ill', ' ward')} --radius auto --folds 5 --class-weight balanced"
    ),
    "balanced, rows with holes dropped": (
        f"{HOSPITALS} --radius 3 --drop visits --missing drop --class-weight balanced"
    ),
    "holes refused": (
        "logistic --data site-{agent}.csv --target ill --missing error --graph path --radius 10 --gap 1e-3"
    ),
    "LIBSVM": LASSO,
    "LIBSVM, random split": f"{LASSO} --split random --seed 4",
    "LIBSVM, sorted split, plain columns": f"{LASSO} --split sorted --no-intercept --no-standardize",
    "own graph": "lasso --data data.svm --graph network.edges --radius 40 --gap 1e-3",
    "npz at sites": "lasso --data site-{agent}.npz --graph star --radius 3 --gap 1e-3",
    "npz, auto": "lasso --data site-{agent}.npz --graph complete --radius auto --folds 1 --gap 1e-4",
    "Parquet": "lasso --data houses.parquet --target price --agents 3 --graph cycle --radius 3 --gap 1e-3",
    "box": f"{HOUSES} --set box --lower 0 --upper 50",
    "groups": f"{HOUSES} --set group-l1 --groups 2 --radius 90",
    "Huber": f"huber --loss-option delta=0.5 {HOUSES.partition(' ')[2]} --set l2 --radius 5",
    "DFW, measured": f"{LASSO.replace(' --gap 1e-3', '')} --method dfw --rounds 100 --measure 10",
    "DCGS": f"{LASSO.replace(' --gap 1e-3', '')} --method dcgs --rounds 20",
    "NIDS": f"{LASSO.replace(' --gap 1e-3', '')} --method nids --rounds 60",
    "over edges, 40 rounds": (
        f"{LASSO.replace(' --gap 1e-3', '')} --rounds 40 --method-option form=edges --inner corrective"
    ),
    "ratings": f"{FILMS} --radius 20",
    "ratings, 12 iterations": f"{FILMS.replace(' --gap 1e-3', '')} --radius 20 --iterations 12",
    "ratings, auto": f"{FILMS} --radius auto",
    "ratings by numbers": (
        f"{FILMS.replace('.csv', '.npz').replace('--ridge 5', '--no-offsets')} --shape 21,31 --radius 50"
    ),
    "resumed": f"{LASSO.replace(' --gap 1e-3', '')} --rounds 40 --checkpoint saved-NAME --every 5 --resume",
    "hospitals over MPI": f"MPI 4 {HOSPITALS} --radius 3",
    "npz over MPI": "MPI 3 lasso --data site-{rank}.npz --graph path --radius 3 --gap 1e-3",
}
BEFORE = {  # of a fit that is resumed
    "resumed": (  # nothing differs but the limit
        f"fit {LASSO.replace(' --gap 1e-3', '')} --rounds 20 --checkpoint saved-NAME "
        "--every 5 --out before-NAME"
    )
}
DATA = {"ratings": "held-out.csv", "LIBSVM": "new.svm", "Parquet": "houses.csv.gz", "npz": "site-0.npz"}


def write_more_files() -> None:
    """Write files of the other formats beside those of docs/fit.md."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(7)
    for i in range(3):
        A = rng.standard_normal((24, 6))
        np.savez(f"site-{i}.npz", A=A, b=A[:, 0] - 2.0 * A[:, 1] + rng.standard_normal(24))
    ratings = np.loadtxt("ratings.csv", delimiter=",", skiprows=1)
    # Repeated pairs count otherwise since 0.10.0.
    rows, cols, values = ratings[np.unique(ratings[:, :2], axis=0, return_index=True)[1]].T
    table("ratings.csv", "user,item,rating", [rows, cols, values])
    np.savez("ratings.npz", rows=rows.astype(int), cols=cols.astype(int), values=values)
    head, *lines = gzip.decompress(Path("houses.csv.gz").read_bytes()).decode().split()
    columns = np.array([[float(cell) for cell in line.split(",")] for line in lines]).T
    parquet.write_table(pa.table(dict(zip(head.split(","), columns, strict=True))), "houses.parquet")


def run(source: Path, command: str) -> str:
    """Run ``dcgs command`` with the sources of a version; return its errors, nothing if it succeeded."""
    dcgs_command = [sys.executable, "-m", "dcgs"]
    words = shlex.split(command)
    if words[1] == "MPI":
        dcgs_command = [
            str(Path(sys.executable).with_name("mpiexec")),
            "-n",
            words[2],
            *dcgs_command,
        ]
        words = [words[0], *words[3:]]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*dcgs_command, *words], env=environment, capture_output=True, text=True, check=False
    )
    return done.stderr.strip() if done.returncode else ""


def models(folder: Path) -> dict[str, Any]:
    """Return the arrays of the models of a folder that both versions have."""
    arrays: dict[str, Any] = {}
    for path in sorted(folder.glob("agent-*.npz")):
        with np.load(path) as model:
            kept = [name for name in model.files if name not in ("meta", "deviation", "row_penalty")]
            arrays |= {f"{path.stem}.{name}": model[name] for name in kept}
    return arrays


def distance(a: dict[str, Any], b: dict[str, Any]) -> float:
    """Return the largest difference of the models of two folders, relative to their size."""
    if a.keys() != b.keys() or any(a[name].shape != b[name].shape for name in a if not is_factor(name)):
        return np.inf
    gaps = [0.0]
    for agent in sorted({name.partition(".")[0] for name in a}):
        pairs = [(dense(x, agent), dense(y, agent)) for x, y in ((a, b),)]
        gaps += [float(np.abs(x - y).max() / max(np.abs(x).max(), 1e-300)) for x, y in pairs]
    return max(gaps)


def is_factor(name: str) -> bool:
    """Return whether a matrix may have another shape in an equal model."""
    return name.endswith((".U", ".V"))


def dense(arrays: dict[str, Any], agent: str) -> Any:
    """Return what a model predicts from: coefficients and intercept, or the matrix and the offsets."""
    own = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{agent}.")}
    if "U" in own:
        matrix = own["U"] @ own["V"].T
        return np.concatenate([matrix.ravel(), own["row_offsets"].ravel(), own["col_offsets"].ravel()])
    return np.concatenate([own["x"].ravel(), own["intercept"].ravel()])


def counts(folder: Path) -> dict[str, Any]:
    """Return radius, rounds and bytes of the run, and the rounds beside it."""
    summary = json.loads((folder / "summary.json").read_text())
    sent = summary.get("sent") or summary.get("before the run") or []
    paths = summary.get("paths") or [summary["path"]] if summary.get("paths") or summary.get("path") else []
    paths = list(paths.values()) if isinstance(paths, dict) else paths
    return {
        "radius": summary["set"].get("radius") if isinstance(summary["set"], dict) else summary.get("radius"),
        "rounds": summary["rounds"],
        "bytes": summary["bytes"],
        "beside": sum(entry.get("rounds", 0) for entry in sent if isinstance(entry, dict)),
        "paths": [path.get("rounds") for path in paths],
    }


def compare(name: str, command: str, old: Path) -> str:
    """Run a command with both versions; return a line about their differences."""
    folders = {}
    for version, source in (("old", old), ("new", NEW)):
        folders[version] = Path(f"{version}-{name.replace(' ', '-').replace(',', '')}")
        arguments = command.replace("NAME", version)
        if version == "new":  # what 0.8.0 always did
            arguments += " --open" + " --held-out 0" * ("completion" in command)
        if version == "new":
            arguments += " --open"  # 0.8.0 masked nothing
        if name in BEFORE:
            run(source, BEFORE[name].replace("NAME", version) + " --open" * (version == "new"))
        error = run(source, f"fit {arguments} --no-report --out {folders[version]}")
        if error:
            return f"{version} failed: {error}"
    a, b = models(folders["old"]), models(folders["new"])
    same = a.keys() == b.keys() and all(a[key].tobytes() == b[key].tobytes() for key in a)
    before, after = counts(folders["old"]), counts(folders["new"])
    words = ["same bits" if same else f"models differ by {distance(a, b):.1e}"]
    for key in before:
        pair = before[key], after[key]
        words.append(f"{key} {pair[0]}" if pair[0] == pair[1] else f"{key} {pair[0]} → {pair[1]}")
    data = next((file for word, file in DATA.items() if name.startswith(word)), None)
    if data is not None and "numbers" not in name:
        predicted = []
        for version, source in (("old", old), ("new", NEW)):
            error = run(source, f"predict {folders['old']} --data {data} --out {version}.csv")
            predicted.append(error or Path(f"{version}.csv").read_text())
        words.append("old model predicts " + ("alike" if predicted[0] == predicted[1] else "otherwise"))
    return "; ".join(words)


def main(old: Path, names: list[str]) -> None:
    """Compare all commands, or those of these names; print a line for each."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_files(samples=40, patients=30)
        write_more_files()
        for name, command in FITS.items():
            if not names or name in names:
                print(f"{name}: {compare(name, command, old)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])

"""
1. Four hospitals and a sparse logistic model
=============================================

Four hospitals want to predict who will be readmitted. None may show its patients to the others. This tutorial
starts from four tables with categories and missing values, and ends with one model, its certificate, and its
accuracy on new patients, beside what each hospital gets alone.

You need ``pip install 'dcgs[plot,frame]'``.
"""

# %%
# The data
# --------
#
# We make patients from a seed, so that the script runs anywhere. Hospitals differ: in size, in the age of
# their patients, and in how often a blood value is missing.

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd

import dcgs

HOSPITALS = ["north", "east", "south", "west"]
WARDS = ["surgery", "heart", "lung", "other"]


def patients(rng: np.random.Generator, count: int, age: float, missing: float) -> pd.DataFrame:
    """Return patients of one hospital, with whether they were readmitted."""
    table = pd.DataFrame(
        {
            "age": rng.normal(age, 15.0, count),
            "sex": rng.choice(["f", "m"], count),
            "ward": rng.choice(WARDS, count, p=[0.3, 0.3, 0.2, 0.2]),
            "stays": rng.poisson(1.5, count).astype(float),
            "creatinine": rng.lognormal(0.0, 0.4, count),
        }
    )
    for j in range(12):  # further blood values, most of which do not matter
        table[f"blood_{j}"] = rng.normal(100.0, 20.0, count)
    score = 0.05 * (table.age - 65) + 0.7 * table.stays + 1.2 * (table.ward == "heart") - 2.2
    score += 1.5 * np.log(table.creatinine) + 0.03 * (table.blood_0 - 100.0)
    readmitted = rng.random(count) < 1.0 / (1.0 + np.exp(-score))
    table.loc[rng.random(count) < missing, "creatinine"] = np.nan
    return table.assign(readmitted=readmitted)


rng = np.random.default_rng(7)
train = {
    "north": patients(rng, 150, 70.0, 0.05),
    "east": patients(rng, 80, 55.0, 0.30),
    "south": patients(rng, 60, 75.0, 0.10),
    "west": patients(rng, 110, 62.0, 0.00),
}
new = pd.concat([patients(rng, 1500, age, 0.1) for age in (70.0, 55.0, 75.0, 62.0)])
print(train["east"].head(4).iloc[:, :6])

# %%
# Agree on columns and units
# --------------------------
#
# Everyone must mean the same by column 3. The hospitals agree on the list of levels, and on a mean and a
# deviation for each number. They get those from counts and sums, which say little about any one patient.
# Missing values get the mean.

NUMBERS = [name for name in train["north"] if name not in ("sex", "ward", "readmitted")]


def sums(table: pd.DataFrame) -> pd.DataFrame:
    """Return what a hospital tells about its numbers: count, sum and sum of squares."""
    numbers = table[NUMBERS]
    return pd.DataFrame({"count": numbers.count(), "sum": numbers.sum(), "squares": (numbers**2).sum()})


total = sum(sums(table) for table in train.values())
mean = total["sum"] / total["count"]
deviation = np.sqrt(total["squares"] / total["count"] - mean**2)


def features(table: pd.DataFrame) -> pd.DataFrame:
    """Return a column of zero mean and unit deviation for each number, and one for each level."""
    columns = (table[NUMBERS].fillna(mean) - mean) / deviation
    columns["sex=m"] = (table.sex == "m") - 0.5
    for ward in WARDS:
        columns[f"ward={ward}"] = (table.ward == ward).astype(float) - 1.0 / len(WARDS)
    return columns


print(features(train["east"]).shape[1], "features")

# %%
# Fit one model together
# ----------------------
#
# Each hospital makes the objective of its own patients. The set says which models are allowed: here
# those with ``Σ |xⱼ| ≤ radius``, of which many coefficients are zero. The graph says who talks to whom: each
# hospital to two others.

objectives = [
    dcgs.Logistic(features(table).to_numpy(), table.readmitted.to_numpy(float)) for table in train.values()
]
names = list(features(new))
X = dcgs.L1Ball(len(names), radius=4.0)
result = dcgs.minimize(objectives, X, nx.cycle_graph(4))
print(result.status)
print(f"{result.rounds} rounds; each hospital sent {result.bytes.max():,} bytes at most")

# %%
# The certificate: the loss of this model is at most ``gap`` above the lowest that any allowed model has, on
# the data of all four. No hospital knows all data; they computed it together.

history = result.history
print(f"loss {history.mean_loss[-1]:.2f}, at most {history.gap[-1]:.2f} above the best")
history.plot()

# %%
# Which features matter?

coefficients = pd.Series(result.x, names).sort_values(key=abs, ascending=False)
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
coefficients[:10][::-1].plot.barh(ax=axes, color="#0072B2")
axes.set_xlabel("coefficient, per standard deviation")

# %%
# Was it worth it?
# ----------------
#
# Each hospital could have fitted its own patients. The area under the ROC curve (AUC) is the chance that a
# readmitted patient gets a higher score than another one.


def auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Return the area under the ROC curve, from ranks."""
    ranks = pd.Series(scores).rank().to_numpy()
    ill = truth.sum()
    return float((ranks[truth].sum() - ill * (ill + 1) / 2) / (ill * (len(truth) - ill)))


alone = [dcgs.minimize([f], X, nx.empty_graph(1)).x for f in objectives]
A, readmitted = features(new).to_numpy(), new.readmitted.to_numpy()
scores = {f"{name} alone": auc(A @ x, readmitted) for name, x in zip(train, alone, strict=True)}
scores["together"] = auc(A @ result.x, readmitted)
print(pd.Series(scores).round(3).to_string())

figure, axes = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
axes.barh(list(scores), list(scores.values()), color=["#D55E00"] * 4 + ["#0072B2"])
axes.set(xlim=(0.5, 1.0), xlabel="AUC on new patients of all hospitals")
plt.show()

# %%
# The radius
# ----------
#
# 4.0 was a guess. A hospital that holds some patients out can judge several radii, and the judgments are
# summed. The example :doc:`/auto_examples/radius` does it by hand.
#
# From here
# ---------
#
# * From CSV files, without Python: ``dcgs fit logistic --data 'hospital-{agent}.csv' …``, see the page on
#   fitting files.
# * Each hospital in a process of its own, that reads only its own file: ``mpiexec -n 4 …``, see the page on
#   MPI. The model is the same to the bit.

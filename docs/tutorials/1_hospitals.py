"""
1. Four hospitals and a sparse logistic model
=============================================

Four hospitals want to predict who will be readmitted. None may show its patients to the others. This tutorial
starts from four tables with categories and missing values, and ends with one model, its certificate, and its
accuracy on new patients, beside what each hospital gets alone.

You need ``pip install 'dcgs[plot,frame,sklearn]'``.
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
from sklearn.metrics import log_loss, roc_auc_score

import dcgs
from dcgs.estimators import DecentralizedLogisticRegression

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
# Numbers from words
# ------------------
#
# Everyone must mean the same by column 3. The hospitals agree on the columns and the levels of each
# category. A missing value becomes the mean of all hospitals. Means need no rows: each hospital tells a
# count and a sum, and
# :func:`dcgs.allreduce` adds them up, over the network.

GRAPH = nx.cycle_graph(4)  # each hospital talks to two others
counts = [[table.creatinine.count(), table.creatinine.sum()] for table in train.values()]
count, total = dcgs.allreduce(counts, GRAPH).arrays
mean_creatinine = float(total / count)


def features(table: pd.DataFrame) -> pd.DataFrame:
    """Return numbers for each patient."""
    columns = table.drop(columns=["sex", "ward", "readmitted"])
    columns["creatinine"] = columns.creatinine.fillna(mean_creatinine)
    columns["sex=m"] = (table.sex == "m").astype(float)
    for ward in WARDS:
        columns[f"ward={ward}"] = (table.ward == ward).astype(float)
    return columns


print(features(train["east"]).shape[1], "features; mean creatinine", round(mean_creatinine, 2))

# %%
# Fit one model together
# ----------------------
#
# ``DecentralizedLogisticRegression`` is an estimator like those of scikit-learn. ``sites`` has the hospital
# of each row. In this script all rows are in one table; in a real run every hospital has a process of its
# own, with its own rows (``runtime=dcgs.MPI()``), and the model is the same.
#
# Scales are everyone's: means and deviations are sums over the network. The intercept is free.
# ``radius="auto"`` finds how large the coefficients may be, by patients that each hospital holds out.

rows = pd.concat([features(table) for table in train.values()])
readmitted = np.concatenate([table.readmitted for table in train.values()])
hospital = np.repeat(range(4), [len(table) for table in train.values()])
model = DecentralizedLogisticRegression(radius="auto", graph=GRAPH).fit(rows, readmitted, sites=hospital)

# %%
# What did that take, and how good is it? The certificate: the loss of this model is at most ``gap_`` above
# the lowest that any model of this radius has, on the data of all four. No hospital knows all data; they
# computed it together.

print(f"radius {model.radius_:.3g}; {model.rounds_} rounds; {model.bytes_:,} bytes of all hospitals together")
loss = log_loss(readmitted, model.predict_proba(rows), normalize=False)
print(f"loss {loss:.2f}, at most {model.gap_:.3f} above the best")
sent = pd.DataFrame([each.to_dict() for each in model.sent_])
print(sent.groupby("name", sort=False)[["rounds", "bytes"]].sum())

# %%
# The path of radii: a small radius leaves features out that matter, a large one follows the noise.

model.path_.plot()

# %%
# Which features matter? Coefficients are in the units of the columns. To compare them, multiply by the
# deviation.

effect = pd.Series(model.coef_[0] * rows.std().to_numpy(), model.feature_names_in_)
effect = effect.sort_values(key=abs, ascending=False)
print((effect != 0.0).sum(), "features of", len(effect))
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
effect[:10][::-1].plot.barh(ax=axes, color="#0072B2")
axes.set_xlabel("coefficient, per standard deviation")

# %%
# Was it worth it?
# ----------------
#
# Each hospital could have fitted its own patients. The area under the ROC curve (AUC) is the chance that a
# readmitted patient gets a higher score than another one.

truth = new.readmitted
scores = {}
for i, name in enumerate(train):
    own = hospital == i
    alone = DecentralizedLogisticRegression(radius="auto", n_sites=1).fit(rows[own], readmitted[own])
    scores[f"{name} alone"] = roc_auc_score(truth, alone.decision_function(features(new)))
scores["together"] = roc_auc_score(truth, model.decision_function(features(new)))
print(pd.Series(scores).round(3).to_string())

figure, axes = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
axes.barh(list(scores), list(scores.values()), color=["#D55E00"] * 4 + ["#0072B2"])
axes.set(xlim=(0.5, 1.0), xlabel="AUC on new patients of all hospitals")
plt.show()

# %%
# From here
# ---------
#
# * From CSV files, without Python: ``dcgs fit logistic --data 'hospital-{agent}.csv' …`` reads categories
#   and missing values, and writes a page about the model; see the page on fitting files.
# * Each hospital in a process of its own, that reads only its own file: ``mpiexec -n 4 …``, see the page on
#   MPI. The model is the same to the bit.
# * Another set, such as groups of features that come and go together: :doc:`/auto_examples/groups`.

"""
2. A recommender over shops
===========================

Six shops know what their customers think of 80 products. Customers differ from shop to shop, products are
the same. No shop shows its ratings to another. Together they learn what a customer would think of a
product that the customer has not rated.

You need ``pip install 'dcgs[plot,frame]'``.
"""

# %%
# The data
# --------
#
# Ratings are a matrix, a row for each customer and a column for each product. Most entries are unknown. We
# make one from a seed: tastes have three dimensions, products are liked by all or by none, customers are
# kind or strict.

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import dcgs

SHOPS, CUSTOMERS, PRODUCTS = 6, 240, 80
rng = np.random.default_rng(5)
taste, style = rng.standard_normal((CUSTOMERS, 3)), rng.standard_normal((PRODUCTS, 3))
kindness, quality = 0.4 * rng.standard_normal(CUSTOMERS), 0.5 * rng.standard_normal(PRODUCTS)
opinion = 3.5 + kindness[:, None] + quality + 0.45 * taste @ style.T
known = rng.random((CUSTOMERS, PRODUCTS)) < 0.25
rows, cols = np.nonzero(known)
stars = np.clip(np.round(opinion[rows, cols] + 0.3 * rng.standard_normal(len(rows))), 1, 5)
is_test = rng.random(len(rows)) < 0.2
shop = rows * SHOPS // CUSTOMERS  # customers 0 … 39 are those of shop 0, and so on
print(f"{len(rows):,} ratings of {CUSTOMERS} customers and {PRODUCTS} products, at {SHOPS} shops")

# %%
# Offsets first
# -------------
#
# Much of a rating is the product and the customer, not their match. A shop knows the mean of each of its
# customers. The mean of a product needs all shops: each tells counts and sums, which are added up. What is
# left is what we model.

train = ~is_test
mean = stars[train].mean()
count = np.bincount(cols[train], minlength=PRODUCTS)
product = np.bincount(cols[train], stars[train] - mean, minlength=PRODUCTS) / (count + 5.0)
count = np.bincount(rows[train], minlength=CUSTOMERS)
customer = np.bincount(rows[train], (stars - mean - product[cols])[train], minlength=CUSTOMERS) / (
    count + 5.0
)
offsets = mean + product[cols] + customer[rows]


def rmse(predicted: np.ndarray) -> float:
    """Return the root mean squared error on the ratings held out."""
    return float(np.sqrt(np.mean((predicted - stars[is_test]) ** 2)))


print(
    f"error of the mean: {rmse(np.full(is_test.sum(), mean)):.3f}; with offsets: {rmse(offsets[is_test]):.3f}"
)

# %%
# A matrix of low rank
# --------------------
#
# Each shop has an objective: the squared errors on its own ratings. The set of allowed matrices is a ball
# of the nuclear norm, the sum of singular values, which makes the rank low. The shops talk along a cycle.

left = stars - offsets
objectives = [
    dcgs.MatrixCompletion(rows[mine], cols[mine], left[mine], (CUSTOMERS, PRODUCTS))
    for mine in (train & (shop == i) for i in range(SHOPS))
]
graph = nx.cycle_graph(SHOPS)

# %%
# How large a ball? Try some, and judge by ratings held out.

results = {}
for radius in (40.0, 80.0, 120.0, 160.0, 220.0, 300.0):
    X = dcgs.NuclearNormBall((CUSTOMERS, PRODUCTS), radius)
    results[radius] = dcgs.minimize(objectives, X, graph, gap=1e-2, every=0)


def predicted(result: dcgs.Result) -> np.ndarray:
    """Return the predicted ratings of the entries held out."""
    return offsets[is_test] + result.x.entries(rows[is_test], cols[is_test])


errors = {radius: rmse(predicted(result)) for radius, result in results.items()}
best = min(errors, key=errors.__getitem__)
model = results[best].x
print(f"radius {best:g}: error {errors[best]:.3f}, rank {model.rank}, {results[best].rounds} rounds")

# %%
# The model is kept in factors. Each shop has the factors of the products, and those of its own customers.

figure, (left_axes, right_axes) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left_axes.plot(list(errors), list(errors.values()), "o-", color="#0072B2", label="low rank")
left_axes.axhline(rmse(offsets[is_test]), color="0.5", linestyle="--", label="offsets only")
left_axes.set(xlabel="radius", ylabel="error on ratings held out, in stars")
left_axes.legend(frameon=False)
right_axes.bar(np.arange(1, 11), model.singular_values()[:10], color="#D55E00")
right_axes.set(xlabel="dimension of taste", ylabel="singular value", xticks=range(1, 11))

# %%
# What would each shop get alone?
# -------------------------------
#
# A shop alone sees forty customers, and cannot learn the dimensions of taste from them.

X = dcgs.NuclearNormBall((CUSTOMERS, PRODUCTS), best)
alone, together = [], []
for i, objective in enumerate(objectives):
    of_shop = is_test & (shop == i)
    own = dcgs.minimize([objective], X, nx.empty_graph(1), gap=1e-2, every=0).x
    for errors_of, found in ((alone, own), (together, model)):
        miss = offsets[of_shop] + found.entries(rows[of_shop], cols[of_shop]) - stars[of_shop]
        errors_of.append(float(np.sqrt(np.mean(miss**2))))

figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
place = np.arange(SHOPS)
axes.bar(place - 0.2, alone, 0.4, label="alone", color="#D55E00")
axes.bar(place + 0.2, together, 0.4, label="together", color="#0072B2")
axes.set(xlabel="shop", ylabel="error, in stars", xticks=place, ylim=(0.0, 1.1))
axes.legend(frameon=False, loc="upper right", ncols=2)

# %%
# Recommend
# ---------
#
# The best products for a customer of shop 0 that the customer has not rated:

seen = cols[rows == 7]
score = product + model.row(7)
score[seen] = -np.inf
best_products = np.argsort(-score)[:5]
print("recommended to customer 7:", best_products.tolist())

figure, axes = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
axes.scatter(opinion[7], mean + product + customer[7] + model.row(7), s=12, color="0.6", label="all products")
axes.scatter(
    opinion[7][best_products],
    (mean + product + customer[7] + model.row(7))[best_products],
    color="#0072B2",
    label="recommended",
)
axes.set(xlabel="what the customer would say, in stars", ylabel="predicted")
axes.legend(frameon=False)
plt.show()

# %%
# From here
# ---------
#
# * From files: ``dcgs fit completion --data 'shop-{agent}.csv' …``, see the page on fitting files.
# * The paper's experiment on MovieLens, and how the methods compare there: see the record.

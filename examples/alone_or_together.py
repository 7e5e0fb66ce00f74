"""
What a site gains from the others
=================================

Each of five sites has 40 patients and 60 features, of which five matter. A model of one site alone is
compared with the model of all, on new patients.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import dcgs

rng = np.random.default_rng(3)
truth = np.zeros(60)
truth[:5] = 2.0, -2.0, 1.5, -1.0, 1.0


def patients(count: int) -> tuple[np.ndarray, np.ndarray]:
    A = rng.standard_normal((count, 60))
    ill = rng.random(count) < 1.0 / (1.0 + np.exp(-A @ truth))
    return A, ill.astype(float)


sites = [dcgs.Logistic(*patients(40)) for _ in range(5)]
new, is_ill = patients(4000)
X = dcgs.L1Ball(60, radius=6.0)


def accuracy(x: np.ndarray) -> float:
    return float(((new @ x > 0.0) == is_ill).mean())


alone = [dcgs.minimize([site], X, nx.empty_graph(1)).x for site in sites]
together = dcgs.minimize(sites, X, nx.cycle_graph(5))

# %%
# The model of all sites has fewer wrong features, and is right more often.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", width_ratios=(2, 1))
left.stem(truth, linefmt="0.7", markerfmt=" ", basefmt=" ", label="truth")
left.plot(alone[0], ".", color="#D55E00", label="site 0 alone")
left.plot(together.x, ".", color="#0072B2", label="all sites together")
left.set(xlabel="feature", ylabel="coefficient")
left.legend(frameon=False)
names = [f"site {i}" for i in range(5)] + ["all"]
right.barh(names, [*map(accuracy, alone), accuracy(together.x)], color=["#D55E00"] * 5 + ["#0072B2"])
right.set(xlabel="accuracy on new patients", xlim=(0.5, 1.0))
plt.show()

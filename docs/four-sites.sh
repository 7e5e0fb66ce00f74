#!/bin/sh
# Four hospitals on this machine, from a new study to a certified model: the commands of docs/sites.md.
# Usage: sh four-sites.sh FOLDER, an empty folder. It needs pip install 'dcgs[sites,sklearn]', and ports 18441 to 18449.
set -e
cd "$1"
export OMP_NUM_THREADS=1

# The data: breast cancer, shifted. Each hospital has patients with tumors of another size.
python3 - <<'DATA'
import csv

import numpy as np
from sklearn.datasets import load_breast_cancer

data = load_breast_cancer()
columns = [name.replace(" ", "_") for name in data.feature_names[:10]]
noise = np.random.default_rng(0).normal(0.0, 4.0, len(data.data))
for site, rows in zip(("ulm", "graz", "bern", "lyon"), np.array_split(np.argsort(data.data[:, 0] + noise), 4)):
    with open(f"{site}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "malignant"])
        writer.writerows([*data.data[i, :10].tolist(), 1 - data.target[i]] for i in rows)
DATA

# The coordinator. Ulm and Graz can be dialed; Bern and Lyon only dial out, and between them there is the relay.
dcgs study new heart/ --sites ulm=https://127.0.0.1:18441,graz=https://127.0.0.1:18442,bern,lyon --graph cycle \
    --relay https://127.0.0.1:18449 --problem logistic --target malignant --radius 10

# Each site makes its keys, which stay there.
dcgs site key ulm/ --data ../ulm.csv --listen 127.0.0.1:18441
dcgs site key graz/ --data ../graz.csv --listen 127.0.0.1:18442
dcgs site key bern/ --data ../bern.csv
dcgs site key lyon/ --data ../lyon.csv
dcgs site key relay/ --listen 127.0.0.1:18449

# The coordinator signs their requests, and everybody gets the study and a certificate.
dcgs study sign heart/ ulm/ulm.csr graz/graz.csr bern/bern.csr lyon/lyon.csr relay/relay.csr
for site in ulm graz bern lyon relay; do cp heart/study.toml "heart/$site.crt" "$site/"; done

# Each site reads what is computed, and agrees. Then all run; in which order they start does not matter.
for site in ulm graz bern lyon; do dcgs site agree --yes "$site/$site.toml" > /dev/null; done
dcgs relay run relay/relay.toml 2> relay.log &
relay=$!
trap 'kill $relay' EXIT
dcgs site run ulm/ulm.toml > ulm.log 2>&1 & ulm=$!
dcgs site run graz/graz.toml > graz.log 2>&1 & graz=$!
dcgs site run bern/bern.toml > bern.log 2>&1 & bern=$!
dcgs site run lyon/lyon.toml > lyon.log 2>&1 & lyon=$!
for site in $ulm $graz $bern $lyon; do wait $site; done

dcgs site status lyon/lyon.toml
dcgs show lyon/run/*/model

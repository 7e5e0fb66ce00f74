#!/bin/sh
# Make a virtual environment at $1, if there is none, with dcgs and its extra $2: report for the demo, test
# for the tests.
set -eu
venv=$1
extra=$2
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    found=$("$python" --version 2>&1 || true)
    echo "dcgs needs Python 3.11 or newer; $python is ${found:-not there}. Use: make PYTHON=python3.11" >&2
    exit 1
fi

# Debian ships venv apart from Python. Install it where we may, else say what to type.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing $package, which Debian ships apart from Python"
        apt-get update -qq && apt-get install -y -qq "$package" >/dev/null
    else
        echo "Python's venv module must be there; it is not. Use: sudo apt-get install $package" >&2
        exit 1
    fi
fi

echo "setting up $venv (about a minute, once)"
if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$extra]"

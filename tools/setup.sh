#!/bin/sh
# Install dcgs with its extra $2 (report for the demo, docs, or test) and dcgs-bench into the virtual
# environment $1.
# What is installed is what constraints.txt has: its versions, and files with its hashes. Do nothing if that is
# done already, for this Python and these files.
set -eu
venv=$1
extra=$2
python=${PYTHON:-python3}
version='import sys; print("%d.%d" % sys.version_info[:2])'

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    found=$("$python" --version 2>/dev/null || echo "not there")
    echo "dcgs needs Python 3.11 or newer; $python is $found. Use: make PYTHON=python3.11" >&2
    exit 1
fi
wanted=$("$python" -c "$version")

# A Python of another version gets a new environment.
if [ "$("$venv/bin/python" -c "import pip; $version" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$venv"
fi

inputs=$(cat pyproject.toml benchmarks/pyproject.toml constraints.txt tools/setup.sh | cksum)
for installed in "$extra" test; do  # the tests need all that the demo needs
    if [ "$(cat "$venv/.installed-$installed" 2>/dev/null)" = "$inputs" ]; then
        exit 0
    fi
done

# Debian ships venv apart from Python. Install it where we may, else say what to type.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=python$wanted-venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing $package, which Debian ships apart from Python"
        apt-get update -qq && apt-get install -y -qq "$package" >/dev/null
    else
        echo "Python's venv module must be there; it is not. Use: sudo apt-get install $package" >&2
        exit 1
    fi
fi

echo "setting up $venv with Python $wanted (about a minute, once)"
# Two processes install half of the packages each, in a new environment. Of what one of them replaces, the other
# would find the remains: so nothing may be there before, and one process alone adds to an old environment.
halves=1
if [ ! -d "$venv" ]; then
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip uninstall --yes -qqq setuptools  # where venv brings one, as until Python 3.11
    halves=2
fi
# Python compiles what it imports, which is a small part of what is installed: so pip need not compile it all.
install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps "$@"
}
# The lock has all that the extra needs, so nothing is resolved, and a file with another hash is refused. Wheels
# alone: what would build from source is not locked.
rm -f "$venv"/locked-*.txt
awk -v extra="$extra" -v half="$venv/locked" -v halves="$halves" '
    /^# Extra / { wanted = !last; last = last || $3 == extra ":" }
    /^[^# ]/ { packages++ }
    wanted && !/^#/ { print > (half "-" packages % halves ".txt") }' constraints.txt
locked() {
    install --require-hashes --only-binary :all: --requirement "$venv/locked-$1.txt"
}
locked 0 &
half=$!
failed=0
[ "$halves" = 1 ] || locked 1 || failed=1
wait "$half" || failed=1
[ "$failed" = 0 ] || exit 1
# The build backend is locked, too. dcgs-bench needs no package that the extra report does not have.
install --no-build-isolation --editable . --editable ./benchmarks
echo "$inputs" >"$venv/.installed-$extra"

#!/bin/sh
# Install dcgs with its extra $2 (report for the demo, test for the tests) into the virtual environment $1.
# The versions are those of constraints.txt. Do nothing if that is done already, for this Python and these files.
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

inputs=$(cat pyproject.toml constraints.txt tools/setup.sh | cksum)
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
[ -d "$venv" ] || "$python" -m venv "$venv"
# pip 25.3 and newer lock the build backend by the second variable, older ones by the first.
export PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
# Python compiles what it imports, which is a small part of what is installed: so pip need not compile it all.
install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"
}
if [ "$extra" = test ]; then
    # The lock is what the tests need and no more. Two processes install half of it each, and resolve nothing.
    locked=$(sed '/^#/d' constraints.txt)
    # shellcheck disable=SC2046  # one argument for each line
    install --no-deps $(echo "$locked" | sed -n 'p;n') &
    half=$!
    failed=0
    # shellcheck disable=SC2046
    install --no-deps $(echo "$locked" | sed -n 'n;p') || failed=1
    wait "$half" || failed=1
    [ "$failed" = 0 ] || exit 1
    install --no-deps --no-build-isolation --editable .
else
    install --editable ".[$extra]"
fi
echo "$inputs" >"$venv/.installed-$extra"

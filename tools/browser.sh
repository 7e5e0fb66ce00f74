#!/bin/sh
# See that a Chromium is there for the tests of the report page; without one they are skipped.
set -u

for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null 2>&1; then
        exit 0
    fi
done

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Chromium, in which the report page is tested"
    if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1; then
        echo "Chromium could not be installed: the report page is not tested in a browser"
    fi
else
    echo "no Chromium here and none may be installed: the report page is not tested in a browser;" \
        "use: sudo apt-get install chromium"
fi
exit 0

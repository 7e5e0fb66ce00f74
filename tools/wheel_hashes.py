"""Print the SHA-256 of every wheel of the releases ``name==version`` that are given, as JSON.

``tools/lock.py`` runs it with the pip of a temporary virtual environment, and so with the package index, the
proxy and the certificates that pip is configured with. No command of pip prints these hashes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from pip._internal.commands import create_command
from pip._internal.index.collector import parse_links
from pip._internal.models.link import Link
from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename


def main() -> None:
    """Print an object with the sorted hashes of each release."""
    command: Any = create_command("download")
    options, releases = command.parse_args(sys.argv[1:])
    with command.main_context():
        session = command._build_session(options)
        collector = command._build_package_finder(options, session)._link_collector
        hashes = {release: sorted(set(_hashes(collector, *release.split("==")))) for release in releases}
    print(json.dumps(hashes))


def _hashes(collector: Any, name: str, version: str) -> Iterator[str]:
    """Yield the hashes that the index has of the wheels of a release, for every platform and Python."""
    for page in collector.search_scope.get_index_urls_locations(name):
        response = collector.fetch_response(Link(page))
        for link in () if response is None else parse_links(response):
            if link.is_wheel and link.hash is not None and link.hash_name == "sha256":
                project, release, *_ = parse_wheel_filename(link.filename)
                if project == canonicalize_name(name) and str(release) == version:
                    yield link.hash


if __name__ == "__main__":
    main()

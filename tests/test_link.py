"""The link model: speeds as people write them, and the seconds that follow."""

from __future__ import annotations

import pytest

from dcgs.link import Link


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("10MB/s", 10e6),
        ("10 MB/s", 10e6),
        ("1GB/s", 1e9),
        ("1.5kB/s", 1500.0),
        ("1KB/s", 1000.0),
        ("7B/s", 7.0),
        ("100Mbit/s", 12.5e6),
        ("1Gbit/s", 125e6),
        ("1e3B/s", 1000.0),
    ],
)
def test_a_speed_is_read_as_people_write_it(text: str, speed: float) -> None:
    assert Link.parse(text).speed == speed


@pytest.mark.parametrize(
    ("text", "latency"), [("10MB/s,20ms", 0.02), ("1GB/s, 200 us", 2e-4), ("1GB/s,1s", 1.0), ("1GB/s", 0.0)]
)
def test_a_latency_may_follow_the_speed(text: str, latency: float) -> None:
    assert Link.parse(text).latency == pytest.approx(latency, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        "10MB/s,",
        "10MB/s,-1ms",
        "10MB/s,5",
        "10MB/s,1h",
        "20ms",
        "",
        "10",
        "10MB",
        "MB/s",
        "-1MB/s",
        "0MB/s",
        "10mb/s",
        "1.2.3MB/s",
        "1e999GB/s",
    ],
)
def test_what_is_no_speed_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 10MB/s, 1GB/s or 100Mbit/s, .* got ") as caught:
        Link.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("speed", [0.0, -1.0, float("inf"), float("nan")])
def test_a_link_has_a_positive_finite_speed(speed: float) -> None:
    with pytest.raises(ValueError, match="must be positive and finite"):
        Link(speed)


def test_the_papers_matrix_takes_80_seconds() -> None:
    assert Link.parse("10MB/s").waiting(8.0 * 10_000**2) == 80.0


@pytest.mark.parametrize("text", ["10 MB/s", "1 GB/s", "12.5 MB/s", "3 kB/s", "7 B/s"])
def test_a_link_is_written_so_that_it_can_be_read_again(text: str) -> None:
    assert str(Link.parse(text)) == text

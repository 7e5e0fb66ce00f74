"""What the oracles of the nuclear-norm ball and the spectraplex promise, against dense decompositions."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from dcgs.atoms import RankOne
from dcgs.points import Point, norm
from dcgs.sets import NuclearNormBall, Spectraplex, lanczos
from dcgs.sets.lanczos import top_triple

TOLERANCE = 1e-8  # the default of the oracle
ROUNDING = 1e-13  # products of some hundred terms, relative to the largest singular value
SIDE = 80  # larger than what is solved directly, so that Lanczos does the work


def with_spectrum(shape: tuple[int, int], sigma: Any, seed: int = 0) -> Point:
    """Return a matrix with the given singular values and random singular vectors."""
    rng = np.random.default_rng(seed)
    values = np.asarray(sigma, dtype=float)
    left, right = (np.linalg.qr(rng.standard_normal((d, values.size)))[0] for d in shape)
    return np.asarray((left * values) @ right.T)


def counted(G: Any) -> tuple[LinearOperator, list[int]]:
    """Return G as an operator, and the count of its products so far."""
    count = [0]

    def times(matrix: Any) -> Callable[[Point], Point]:
        def product(x: Point) -> Point:
            count[0] += 1
            return np.asarray(matrix @ x)

        return product

    return LinearOperator(G.shape, matvec=times(G), rmatvec=times(G.T), dtype=np.float64), count


def products(G: Any, near: RankOne | None = None, tolerance: float = TOLERANCE) -> int:
    operator, count = counted(G)
    top_triple(operator, near, tolerance)
    return count[0]


def atom_of(u: NDArray[np.float64], v: NDArray[np.float64]) -> RankOne:
    return RankOne(1.0, u.copy(), v.copy())


steps = np.arange(SIDE)
SPECTRA = {
    "rank one": [3.0],
    "rank three": [3.0, 2.0, 1.0],
    "all equal": np.ones(SIDE),
    "orthogonal up to 1e-9": 1.0 - 1e-9 * steps,
    "gaps of 1e-8": 1.0 - 1e-8 * steps,
    "gaps of 1e-6": 1.0 - 1e-6 * steps,
    "gaps of 1e-4": 1.0 - 1e-4 * steps,
    "two nearly equal, 1e-9": [1.0, 1.0 - 1e-9, *(0.5 * np.ones(60))],
    "two nearly equal, 1e-5": [1.0, 1.0 - 1e-5, *np.linspace(0.0, 0.9, 60)],
    "many at the top": [*np.ones(20), *np.linspace(0.0, 0.99, 60)],
    "falling fast": 0.5**steps,
    "falling slowly": 1.0 / (1.0 + steps),
    "falling by steps": np.linspace(0.0, 1.0, SIDE),
}
FORMS: dict[str, Callable[[Point], Any]] = {
    "dense": np.array,
    "column-major": np.asfortranarray,
    "sparse": sp.csr_array,
    "old sparse": sp.coo_matrix,
    "operator": aslinearoperator,
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
every_shape = pytest.mark.parametrize("shape", [(SIDE, 140), (140, SIDE)], ids=str)


def assert_promise(G: Point, s: RankOne, radius: float, tolerance: float = TOLERANCE) -> None:
    sigma = float(np.linalg.norm(G, 2))
    assert s.dot(G) <= -(1.0 - tolerance) * radius * sigma + ROUNDING * radius * sigma
    assert [norm(s.u), norm(s.v)] == pytest.approx([1.0, 1.0], rel=ROUNDING)
    assert (s.u.shape, s.v.shape) == (G.shape[:1], G.shape[1:])


@pytest.mark.parametrize("sigma", SPECTRA.values(), ids=SPECTRA)
def test_the_value_is_the_promised_one_for_every_spectrum(sigma: Any) -> None:
    G = with_spectrum((SIDE, 140), sigma)
    assert_promise(G, NuclearNormBall(G.shape, 2.5).lmo(G), 2.5)


@every_shape
@pytest.mark.parametrize("sigma", SPECTRA.values(), ids=SPECTRA)
def test_the_triple_satisfies_both_equations(shape: tuple[int, int], sigma: Any) -> None:
    G = with_spectrum(shape, sigma)
    top = top_triple(G)
    allowed = (TOLERANCE + ROUNDING) * top.sigma
    assert norm(G @ top.v - top.sigma * top.u) <= allowed
    assert norm(G.T @ top.u - top.sigma * top.v) <= allowed


@every_form
@every_shape
def test_every_form_of_a_direction_is_answered(shape: tuple[int, int], form: Callable[[Point], Any]) -> None:
    G = np.random.default_rng(1).standard_normal(shape)
    G[np.abs(G) < 1.0] = 0.0
    assert_promise(G, NuclearNormBall(shape).lmo(form(G)), 1.0)


@every_form
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (1, 300), (300, 1), (2, 300), (70, 70)], ids=str)
def test_every_shape_is_answered(shape: tuple[int, int], form: Callable[[Point], Any]) -> None:
    G = np.random.default_rng(2).standard_normal(shape)
    assert_promise(G, NuclearNormBall(shape).lmo(form(G)), 1.0)


@every_form
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (SIDE, 140)], ids=str)
def test_a_zero_matrix_gives_an_extreme_point(shape: tuple[int, int], form: Callable[[Point], Any]) -> None:
    s = NuclearNormBall(shape, 2.0).lmo(form(np.zeros(shape)))
    assert s.norm_squared() == 4.0
    assert (s.u[0], s.v[0], norm(s.u), norm(s.v)) == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("scale", [1e-290, 1e-200, 1e-30, 1e30, 1e200, 1e290])
@pytest.mark.parametrize("shape", [(8, 6), (SIDE, 140)], ids=str)
def test_the_scale_of_a_matrix_does_not_matter(shape: tuple[int, int], scale: float) -> None:
    G = np.random.default_rng(3).standard_normal(shape)
    top = top_triple(scale * G)
    assert_promise(G, RankOne(-1.0, top.u, top.v), 1.0)
    assert top.sigma == pytest.approx(scale * float(np.linalg.norm(G, 2)), rel=TOLERANCE)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6, 1e-12])
def test_the_tolerance_can_be_chosen(tolerance: float) -> None:
    G = np.random.default_rng(4).standard_normal((SIDE, 140))
    top = top_triple(G, tolerance=tolerance)
    assert (
        norm(G @ top.v - top.sigma * top.u) + norm(G.T @ top.u - top.sigma * top.v) <= tolerance * top.sigma
    )
    assert_promise(G, NuclearNormBall(G.shape, 1.0, tolerance).lmo(G), 1.0, tolerance)


def test_a_loose_tolerance_saves_products() -> None:
    G = np.random.default_rng(4).standard_normal((SIDE, 140))
    assert products(G, tolerance=1e-3) < 0.7 * products(G)


# Warm starts


@pytest.mark.parametrize("wrong", [1, SIDE - 1])
@every_shape
def test_a_start_orthogonal_to_the_answer_still_finds_the_top_vector(
    shape: tuple[int, int], wrong: int
) -> None:
    G = with_spectrum(shape, 1.0 - 1e-3 * steps)
    U, _, Vt = np.linalg.svd(G, full_matrices=False)
    assert_promise(G, NuclearNormBall(shape).lmo(G, near=atom_of(U[:, wrong], Vt[wrong])), 1.0)


def test_a_start_in_the_null_space_still_finds_the_top_vector() -> None:
    G = np.zeros((SIDE, SIDE))
    G[5, 7] = 1e-3
    unit = np.eye(SIDE)[3]
    assert_promise(G, NuclearNormBall(G.shape).lmo(G, near=atom_of(unit, unit)), 1.0)


def test_a_wrong_singular_vector_costs_no_more_than_is_said() -> None:
    G = with_spectrum((SIDE, SIDE), 1.0 - 1e-7 * steps)
    U, _, Vt = np.linalg.svd(G)
    s = NuclearNormBall(G.shape).lmo(G, near=atom_of(U[:, 1], Vt[1]))
    assert_promise(G, s, 1.0, tolerance=lanczos.MARGIN * TOLERANCE * math.sqrt(SIDE) / lanczos.NOISE)


@pytest.mark.parametrize("change", [1e-4, 1e-2])
def test_a_near_answer_saves_products(change: float) -> None:
    rng = np.random.default_rng(6)
    G, E = rng.standard_normal((2, SIDE, 140))
    earlier = NuclearNormBall(G.shape).lmo(G)
    later = G + change * E
    assert products(later, near=earlier) < 0.9 * products(later)
    assert_promise(later, NuclearNormBall(G.shape).lmo(later, near=earlier), 1.0)


def test_a_near_answer_of_another_shape_is_ignored() -> None:
    G = np.random.default_rng(7).standard_normal((SIDE, 140))
    strangers = [RankOne(1.0, np.eye(1, 140)[0], np.eye(1, SIDE)[0]), RankOne(1.0, np.ones(1), np.ones(1))]
    plain = NuclearNormBall(G.shape).lmo(G).dense()
    for near in strangers:
        np.testing.assert_array_equal(NuclearNormBall(G.shape).lmo(G, near).dense(), plain)


# The same bits, bounded work, bounded memory


def test_threads_get_the_same_bits() -> None:
    G = sp.random_array((300, 400), density=0.02, rng=np.random.default_rng(8), format="csr")
    X = NuclearNormBall(G.shape)
    with ThreadPoolExecutor(4) as pool:
        answers = {s.u.tobytes() + s.v.tobytes() for s in pool.map(X.lmo, [G] * 16)}
    assert len(answers) == 1


def test_what_does_not_converge_is_solved_as_a_dense_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanczos, "STEPS", 3)
    G = np.random.default_rng(9).standard_normal((SIDE, 140))
    assert products(G) == 2 * (3 + SIDE) + 2
    assert_promise(G, NuclearNormBall(G.shape).lmo(G), 1.0)


@pytest.mark.parametrize("limit", [3, lanczos.SUBSPACE])
def test_what_is_too_large_for_that_gives_the_best_vector_found(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(lanczos, "STEPS", limit)
    monkeypatch.setattr(lanczos, "DENSE_SIDE", SIDE - 1)
    G = np.random.default_rng(9).standard_normal((SIDE, 140))
    start = lanczos.start_vector(G.T @ lanczos.probe(SIDE), SIDE, None)
    assert products(G, tolerance=1e-12) == 2 * limit + 2
    assert top_triple(G, tolerance=1e-12).sigma >= norm(G.T @ start) / norm(start)
    # A few steps find most of it, and more steps more: 3 products reach about 0.8 of the value here.
    X = NuclearNormBall(G.shape, tolerance=1e-12)
    assert_promise(G, X.lmo(G), 1.0, tolerance=0.3)


def test_an_operator_that_is_not_linear_ends_all_the_same() -> None:
    rng = np.random.default_rng(10)
    noise = LinearOperator(
        (80, 80),
        matvec=lambda _: rng.standard_normal(80),
        rmatvec=lambda _: rng.standard_normal(80),
        dtype=np.float64,
    )
    s = NuclearNormBall((80, 80)).lmo(noise)
    assert norm(s.u) == pytest.approx(1.0, rel=ROUNDING)


def test_memory_is_bounded_by_the_subspace() -> None:
    size = 5_000
    diagonal = sp.diags_array(np.linspace(0.0, 1.0, size) ** 0.1)
    tracemalloc.start()
    top_triple(diagonal, tolerance=1e-3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A basis, its replacement at a restart, and a handful of vectors.
    assert peak < (lanczos.SUBSPACE + lanczos.KEPT + 12) * size * 8


@pytest.mark.parametrize("form", [np.array, sp.csr_array, aslinearoperator])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("side", [3, SIDE])
def test_a_direction_that_is_not_finite_is_refused(
    side: int, value: float, form: Callable[[Point], Any]
) -> None:
    G = np.eye(side)
    G[1, 2] = value
    with pytest.raises(ValueError, match=r"direction must be finite; a product with it is not\."):
        NuclearNormBall(G.shape).lmo(form(G))
    with pytest.raises(ValueError, match=r"direction must be finite; a product with it is not\."):
        Spectraplex(side).lmo(form(G))


# The spectraplex


def symmetric(spectrum: Any) -> Point:
    Q = np.linalg.qr(np.random.default_rng(11).standard_normal((SIDE, SIDE)))[0]
    return np.asarray((Q * np.asarray(spectrum)) @ Q.T)


EIGENVALUES = {
    "both signs": np.linspace(-1.0, 2.0, SIDE),
    "all positive": np.linspace(1.0, 2.0, SIDE),
    "all negative": np.linspace(-2.0, -1.0, SIDE),
    "one negative": np.r_[-1e-3, np.ones(SIDE - 1)],
    "far from 0": 1e6 + np.linspace(-1.0, 1.0, SIDE),
    "all equal": np.full(SIDE, -3.0),
    "nearly equal": 1.0 + 1e-9 * steps,
}


def assert_bottom(G: Point, s: RankOne, radius: float, tolerance: float = TOLERANCE) -> None:
    spectrum = np.linalg.eigvalsh((G + G.T) / 2.0)
    size = float(np.abs(spectrum).max())
    assert s.dot(G) <= radius * (spectrum[0] + (tolerance + ROUNDING) * size)
    assert s.scale == radius
    assert norm(s.v) == pytest.approx(1.0, rel=ROUNDING)
    np.testing.assert_array_equal(s.u, s.v)


@pytest.mark.parametrize("spectrum", EIGENVALUES.values(), ids=EIGENVALUES)
def test_the_smallest_eigenvalue_is_found_for_every_spectrum(spectrum: Any) -> None:
    G = symmetric(spectrum)
    assert_bottom(G, Spectraplex(SIDE, 2.5).lmo(G), 2.5)


@every_form
def test_a_direction_that_is_not_symmetric_counts_by_its_symmetric_part(form: Callable[[Point], Any]) -> None:
    G = np.random.default_rng(12).standard_normal((SIDE, SIDE))
    assert_bottom(G, Spectraplex(SIDE).lmo(form(G)), 1.0)


@every_form
def test_a_zero_direction_of_the_spectraplex_gives_an_extreme_point(form: Callable[[Point], Any]) -> None:
    s = Spectraplex(SIDE, 2.0).lmo(form(np.zeros((SIDE, SIDE))))
    np.testing.assert_array_equal(s.v, np.eye(1, SIDE)[0])


@pytest.mark.parametrize("wrong", [1, SIDE - 1])
def test_a_wrong_eigenvector_does_not_mislead_the_spectraplex(wrong: int) -> None:
    G = symmetric(np.linspace(-1.0, 2.0, SIDE))
    v = np.linalg.eigh(G)[1][:, wrong]
    assert_bottom(G, Spectraplex(SIDE).lmo(G, near=atom_of(v, v)), 1.0)


@pytest.mark.parametrize("scale", [1e-290, 1e290])
def test_the_scale_does_not_matter_to_the_spectraplex(scale: float) -> None:
    G = symmetric(np.linspace(-1.0, 2.0, SIDE))
    assert_bottom(G, Spectraplex(SIDE).lmo(scale * G), 1.0)


def test_nearly_equal_eigenvalues_have_an_eigenvector() -> None:
    """For this matrix LAPACK's search for the largest eigenvalue alone returns none."""
    B = np.diag([-0.833591829047663, -0.8335918290476622, -0.8335918290476619])
    B[1, 0] = B[0, 1] = 1.410682551675202e-16
    B[2, 0] = B[0, 2] = -1.694133657144381e-16
    B[2, 1] = B[1, 2] = 1.2177758801357186e-15
    v = lanczos.dense_top_eigenvector(B)
    assert np.linalg.norm(v) == pytest.approx(1.0)
    assert float(v @ B @ v) == pytest.approx(-0.8335918290476619)

"""Isolation Forest: grown by scikit-learn, kept as arrays, scored by a loop of our own that gives the same numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

F32 = NDArray[np.float32]
_EULER = 0.5772156649015329
LEAF = -1
BLOCK_ROWS = 256

_DTYPES = {
    "roots": np.int32,
    "feature": np.int16,
    "threshold": np.float64,
    "left": np.int32,
    "right": np.int32,
    "path": np.float64,
}


@dataclass(frozen=True)
class Forest:
    """Nodes of all trees, one after the other.

    roots: (trees,) int32, index of each tree's root. feature: (m,) int16, LEAF for a leaf. threshold: (m,) float64,
    go left when value <= threshold. left, right: (m,) int32. path: (m,) float64, for a leaf its depth plus the mean
    path length of what it still holds. norm: mean path length of the rows that a tree was grown on.
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int16]
    threshold: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    path: NDArray[np.float64]
    norm: float
    columns: int

    @classmethod
    def grow(cls, rows: F32, *, seed: int, trees: int = 100, sample: int = 256) -> Forest:
        """Fit on (n, f) float32 rows without NaN, n >= 2. The same rows in the same order and seed: the same forest."""
        from sklearn.ensemble import IsolationForest

        fitted = IsolationForest(n_estimators=trees, max_samples=min(sample, len(rows)), random_state=seed).fit(rows)
        return cls.of_fitted(fitted)

    @classmethod
    def of_fitted(cls, fitted: Any) -> Forest:
        """Take the arrays out of a fitted sklearn.ensemble.IsolationForest."""
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("feature", "threshold", "left", "right", "path")}
        roots, at = [], 0
        for estimator, columns in zip(fitted.estimators_, fitted.estimators_features_, strict=True):
            tree = estimator.tree_
            is_leaf = tree.children_left == -1
            roots.append(at)
            parts["feature"].append(np.where(is_leaf, LEAF, columns[np.maximum(tree.feature, 0)]))
            parts["threshold"].append(tree.threshold)
            parts["left"].append(np.where(is_leaf, 0, tree.children_left + at))
            parts["right"].append(np.where(is_leaf, 0, tree.children_right + at))
            parts["path"].append(_depths(tree) + mean_path(tree.n_node_samples))
            at += tree.node_count
        joined = {name: np.concatenate(chunks) for name, chunks in parts.items()}
        return cls(
            roots=np.array(roots, np.int32),
            feature=joined["feature"].astype(np.int16),
            threshold=joined["threshold"].astype(np.float64),
            left=joined["left"].astype(np.int32),
            right=joined["right"].astype(np.int32),
            path=joined["path"].astype(np.float64),
            norm=float(mean_path(np.array([fitted.max_samples_]))[0]),
            columns=int(fitted.n_features_in_),
        )

    def anomaly(self, rows: F32) -> NDArray[np.float64]:
        """(n,) in (0, 1), high when rows are isolated early: the negative of scikit-learn's score_samples.

        This is the one place where polarity is converted. A row's score does not depend on the other rows.
        Source: Liu, Ting, Zhou, "Isolation Forest", 2008, equation 2.
        """
        assert rows.shape[1:] == (self.columns,)
        depths = _path_lengths(
            np.ascontiguousarray(rows, np.float32),
            self.roots,
            self.feature,
            self.threshold,
            self.left,
            self.right,
            self.path,
        )
        return np.asarray(np.exp2(-depths / (len(self.roots) * self.norm)))

    def ceiling(self) -> float:
        """The score of a row above every threshold in every column."""
        return float(self.anomaly(np.full((1, self.columns), np.finfo(np.float32).max, np.float32))[0])

    def is_sound(self) -> bool:
        """Whether every index stays inside and every path ends: what bytes from outside must prove before a loop
        without checks walks them."""
        if not all(getattr(self, name).dtype == dtype for name, dtype in _DTYPES.items()):
            return False
        nodes = len(self.feature)
        same = all(len(a) == nodes for a in (self.threshold, self.left, self.right, self.path))
        if not same or not len(self.roots) or self.norm <= 0:
            return False
        inner = self.feature != LEAF
        here = np.arange(nodes)
        children = np.stack((self.left, self.right))[:, inner]
        # Children come after their parent, so that a walk cannot circle.
        forward = bool((children > here[inner]).all() and (children < nodes).all())
        columns = bool((self.feature >= LEAF).all() and (self.feature < self.columns).all())
        return forward and columns and bool((self.roots >= 0).all() and (self.roots < nodes).all())


def mean_path(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Mean path length of an unsuccessful search in a binary tree of that many rows (equation 1 of the paper)."""
    n = np.asarray(rows, np.float64)
    many = np.maximum(n, 3.0) - 1.0
    longer = 2.0 * (np.log(many) + _EULER) - 2.0 * many / (many + 1.0)
    return np.where(n <= 1, 0.0, np.where(n == 2, 1.0, longer))


def _depths(tree: Any) -> NDArray[np.float64]:
    depth = np.zeros(tree.node_count)
    for node in range(tree.node_count):
        if tree.children_left[node] != -1:
            # scikit-learn numbers a node before its children.
            depth[tree.children_left[node]] = depth[tree.children_right[node]] = depth[node] + 1
    return depth


@njit(cache=True, nogil=True)
def _path_lengths(
    rows: F32,
    roots: NDArray[np.int32],
    feature: NDArray[np.int16],
    threshold: NDArray[np.float64],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    path: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(n,) sum over the trees of the path length of each row. Arrays as in Forest.

    Block of rows by block of rows, tree by tree, so that a tree and the rows stay in the cache; each row's sum is
    taken in the order of the trees.
    """
    total = np.zeros(len(rows))
    for first in range(0, len(rows), BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, len(rows))
        for root in roots:
            for row in range(first, last):
                node = root
                column = feature[node]
                while column >= 0:
                    node = left[node] if rows[row, column] <= threshold[node] else right[node]
                    column = feature[node]
                total[row] += path[node]
    return total

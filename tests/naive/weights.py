"""Rows of the bag in each node of a tree, and exact statistics of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

Node = Mapping[str, Any]
Row = Mapping[str, float]


def pass_through(nodes: Sequence[Node], row: Row) -> list[int]:
    """Return the path of a row without missing values, from the root to its leaf; nodes: rows of the forest table."""
    path = [0]
    while (node := nodes[path[-1]])["kind"] != "leaf":
        value = row[node["feature"]] if node["kind"] == "axis" else 0.0
        for term in node["terms"] or []:
            value += term["weight"] * row[term["feature"]]
        path.append(node["left"] if value <= node["threshold"] else node["right"])
    return path


def held(nodes: Sequence[Node], rows: Sequence[Row], weights: Sequence[Fraction]) -> list[list[tuple[int, Fraction]]]:
    """Return the numbers and weights of the rows of each node; rows of weight 0 are not in the bag."""
    found: list[list[tuple[int, Fraction]]] = [[] for _ in nodes]
    for number, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        if weight:
            for node in pass_through(nodes, row):
                found[node].append((number, weight))
    return found


def mean(values: Sequence[Fraction], own: Sequence[tuple[int, Fraction]]) -> Fraction:
    """The mean of the values of some rows by their weights."""
    return sum((weight * values[row] for row, weight in own), Fraction()) / sum(weight for _, weight in own)


def variance(values: Sequence[Fraction], own: Sequence[tuple[int, Fraction]]) -> Fraction:
    """Return the variance of the values of some rows by their weights."""
    centre = mean(values, own)
    return mean([(value - centre) ** 2 for value in values], own)

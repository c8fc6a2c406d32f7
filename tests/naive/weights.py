"""What the nodes of a tree hold, in exact arithmetic, from where the rows of its bag go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

Node = Mapping[str, Any]
Row = Mapping[str, float]


def pass_through(nodes: Sequence[Node], row: Row) -> list[int]:
    """The nodes of a tree, as a forest table has them, that a row without missing values passes, its leaf the last."""
    path = [0]
    while (node := nodes[path[-1]])["kind"] != "leaf":
        value = row[node["feature"]] if node["kind"] == "axis" else 0.0
        for term in node["terms"] or []:
            value += term["weight"] * row[term["feature"]]
        path.append(node["left"] if value <= node["threshold"] else node["right"])
    return path


def held(nodes: Sequence[Node], rows: Sequence[Row], weights: Sequence[Fraction]) -> list[list[tuple[int, Fraction]]]:
    """For each node of a tree its rows, by number, and their weights; rows of weight 0 are not in the bag."""
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
    """Their variance."""
    centre = mean(values, own)
    return mean([(value - centre) ** 2 for value in values], own)

"""What Ho, Random Decision Forests, ICDAR 1995, prints for the NIST digits, and a numpy trial on MNIST."""

from __future__ import annotations

from typing import NamedTuple


class Single(NamedTuple):
    """A single tree of Table 1: accuracies in percent, of all and of each class; leaves of each class."""

    leaves: int
    nodes: int
    accuracy: float
    by_class: tuple[float, ...]
    leaves_by_class: tuple[int, ...]


TABLE_1 = {
    ("CAP", "f1"): Single(
        1975,
        3949,
        89.57,
        (95.24, 98.27, 87.13, 88.88, 89.99, 86.07, 91.09, 89.95, 83.01, 84.98),
        (108, 87, 226, 247, 183, 251, 121, 185, 288, 279),
    ),
    ("CAP", "f2"): Single(
        1628,
        3255,
        91.11,
        (96.54, 98.45, 91.94, 90.90, 90.20, 90.25, 89.72, 90.34, 84.57, 87.44),
        (93, 80, 167, 212, 139, 193, 110, 161, 234, 239),
    ),
    ("PER", "f1"): Single(
        154,
        307,
        86.01,
        (91.77, 97.32, 83.30, 85.24, 83.92, 78.67, 87.07, 87.98, 79.39, 83.55),
        (9, 12, 18, 17, 14, 15, 12, 16, 22, 19),
    ),
    ("PER", "f2"): Single(
        44,
        87,
        93.32,
        (96.21, 98.53, 93.22, 92.72, 92.65, 92.39, 93.14, 93.10, 89.36, 91.22),
        (2, 3, 5, 6, 5, 3, 4, 5, 6, 5),
    ),
}

# Accuracy of CAP trees in subspaces of 100 of f1 on MNIST by the number of trees, by a plain numpy program: with ties
# rejected, and with ties to the lowest class.
TRIAL = {
    "reject": {1: 0.822, 2: 0.732, 3: 0.874, 4: 0.894, 5: 0.912, 10: 0.938, 20: 0.950},
    "lowest": {1: 0.823, 2: 0.855, 3: 0.899, 4: 0.924, 5: 0.933, 10: 0.948, 20: 0.954},
}

"""Reference numbers of Randomer forests: out-of-bag errors of an independent implementation, means of 10
draws of 100 rows.

Their standard errors are 0.004 to 0.017, and are not known cell by cell.
"""

from __future__ import annotations

Table = dict[tuple[str, int, str], dict[str, float]]


def _table(kind: str, methods: tuple[str, ...], rows: dict[int, tuple[float, ...]]) -> Table:
    return {(kind, dims, "raw"): dict(zip(methods, errors, strict=True)) for dims, errors in rows.items()}


_ALL = ("RF", "RerF", "RerF(d)", "RerF(d+r)")

# (simulation, p, transformation): error of each method.
REFERENCE: Table = {
    **_table(
        "trunk",
        _ALL,
        {
            2: (0.135, 0.134, 0.128, 0.129),
            8: (0.086, 0.069, 0.055, 0.059),
            32: (0.068, 0.045, 0.018, 0.030),
            126: (0.077, 0.052, 0.024, 0.025),
            501: (0.062, 0.049, 0.030, 0.037),
            1000: (0.089, 0.099, 0.045, 0.061),
        },
    ),
    **_table(
        "parity",
        _ALL,
        {
            2: (0.009, 0.009, 0.013, 0.059),
            3: (0.334, 0.112, 0.046, 0.221),
            4: (0.495, 0.431, 0.323, 0.438),
            5: (0.506, 0.498, 0.461, 0.492),
            10: (0.5, 0.5, 0.5, 0.5),
        },
    ),
    **_table(
        "multimodal",
        ("RF", "RerF", "RerF(d)", "Bayes"),
        {
            2: (0.551, 0.554, 0.543, 0.503),
            8: (0.300, 0.257, 0.269, 0.127),
            16: (0.183, 0.143, 0.156, 0.022),
            32: (0.088, 0.053, 0.061, 0.0005),
        },
    ),
    **_table(
        "modified-trunk",
        _ALL,
        {
            2: (0.078, 0.070, 0.070, 0.071),
            16: (0.048, 0.037, 0.030, 0.031),
            126: (0.040, 0.039, 0.082, 0.040),
            1000: (0.046, 0.102, 0.230, 0.106),
        },
    ),
}

# Trunk of 501 dimensions by transformation: a draw of its own, so its raw column differs from the table above.
_TRANSFORMED = {
    "raw": (0.080, 0.036, 0.041),
    "rotated": (0.159, 0.041, 0.044),
    "scaled": (0.078, 0.065, 0.037),
    "affine": (0.160, 0.085, 0.042),
    "outliers": (0.103, 0.062, 0.072),
}
TRANSFORMED: Table = {
    ("trunk", 501, name): dict(zip(("RF", "RerF(d)", "RerF(d+r)"), errors, strict=True))
    for name, errors in _TRANSFORMED.items()
}

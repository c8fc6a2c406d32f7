"""Members of public classes for other modules of the package. The reference leaves them out, and they may change."""

from __future__ import annotations

INNER_MEMBERS = {
    "TrainConfig": {
        *("axis_count", "boosts", "chooses_axes", "criterion", "cuts", "draw_rule", "drawn_features"),
        *("drawn_projections", "draws_by_class", "for_task", "in_subspaces", "leaf_rule"),
        *("min_levels", "only_task", "projection_rule", "rotated_count", "subspace_size", "subspace_sizes"),
        *("tie_rule", "weighs_rows", "weighs_trees", "with_defaults"),
    },
    "Store": {
        *("as_encoded", "check_unchanged", "checksums", "codes", "crc", "dictionaries", "ends", "fetch"),
        *("fetch_whole", "folder", "groups_of", "labels", "of_rows", "place", "shape", "unchanged", "weights_of"),
        *("with_codes", "with_fills", "with_values"),
    },
    "Pictures": {"explain", "opened"},
}

"""Forests made from forests: merged, pruned or calibrated; and validation on other rows."""

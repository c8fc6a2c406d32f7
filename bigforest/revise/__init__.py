"""Forests made from forests: merged, pruned, calibrated, or judged on other rows."""

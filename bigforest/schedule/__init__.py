"""Running pure functions side by side. The only package that imports dask."""

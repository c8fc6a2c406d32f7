"""Running pure functions side by side, on threads or on a Dask cluster. The only package that imports dask."""

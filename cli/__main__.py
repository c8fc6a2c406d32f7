"""python -m bigforest_cli"""

from .start import start

start()

"""python -m bigforest"""

from bigforest_cli.start import start

start()

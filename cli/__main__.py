"""python -m bigforest_cli"""

from .start import main

main()

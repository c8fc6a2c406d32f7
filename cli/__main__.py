"""python -m bigforest_cli"""

from .app import main

main()

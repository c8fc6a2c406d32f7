"""python -m bigforest"""

from bigforest_cli.app import main

main()

"""python -m bigforest"""

from bigforest_cli.start import main

main()

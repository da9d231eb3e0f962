"""`python -m tenor` is the command line `tenor`."""
import sys

from tenor._cli import main

sys.exit(main())

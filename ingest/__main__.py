"""`python -m fleetpulse.ingest` is the console command."""

from fleetpulse.ingest._cli import main

main()

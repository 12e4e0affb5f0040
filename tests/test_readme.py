"""What the README says of settings is what the settings are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_table_of_settings_is_current() -> None:
    """`fleetpulse settings --markdown` prints the table to put there."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FLEETPULSE_")}
    command = [sys.executable, "-m", "fleetpulse.ingest", "settings", "--markdown"]
    table = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    assert table.strip() in README.read_text()

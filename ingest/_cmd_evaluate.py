"""`fleetpulse evaluate`."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetpulse.ingest._durations import parse_duration
from fleetpulse.ingest._errors import UserError

if TYPE_CHECKING:
    from fleetpulse.anomaly._evaluate import Recording, Report

_REASON = re.compile(r"(\d+)-(\d+):([\d,]+)")


def evaluate_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder of .npz files, each with train (rows, columns), test (rows, columns), label (0 or 1 for each "
            "row of test) and, if you like, reasons: lines FIRST-LAST:COLUMN,... with rows from 0 and columns from 1.",
        ),
    ],
    interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Time from row to row, for what is told per day.")
    ] = "1m",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the forest.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Runs the detector over labelled recordings and tells how well it does.

    Causal: a row's score uses the training rows and the rows up to it. One configuration for all files, no point
    adjustment.
    """
    from fleetpulse.anomaly._evaluate import evaluate

    interval_s = parse_duration(interval) / 1000
    if interval_s <= 0:
        raise UserError("--interval must be above 0, like 1m or 300s")
    paths = _paths(folder)
    report = evaluate(_with_progress(paths), interval_s=interval_s, seed=seed)
    if as_json:
        print(json.dumps(report.to_dict()))
    else:
        _print_table(report)


def read_recording(path: Path) -> Recording:
    """One .npz file. Raises UserError that names the file and what is wrong with it. Nothing in it is executed."""
    import numpy as np

    from fleetpulse.anomaly._evaluate import Recording

    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files if name in ("train", "test", "label", "reasons")}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read as .npz without pickled objects: {error}") from None
    train, test, label = (_numbers(path, found, name) for name in ("train", "test", "label"))
    if train.ndim != 2 or test.ndim != 2 or train.shape[1] != test.shape[1] or train.shape[1] == 0:
        raise UserError(f"{path}: train {train.shape} and test {test.shape} must be tables with the same columns")
    if label.shape != (len(test),) or not np.isin(label, (0, 1)).all():
        raise UserError(f"{path}: label {label.shape} must hold a 0 or 1 for each of the {len(test)} rows of test")
    _check_length(path, len(train), len(test))
    reasons = _reasons(path, str(found.get("reasons", "")), test.shape)
    return Recording(path.stem, train, test, label.astype(np.bool_), reasons)


def _paths(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; give the folder that holds the .npz files")
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        raise UserError(f"{folder} holds no .npz file; each recording is one, with arrays train, test and label")
    return paths


def _numbers(path: Path, found: dict[str, Any], name: str) -> Any:
    import numpy as np

    if name not in found:
        raise UserError(f"{path} has no array {name!r}; it needs train, test and label")
    if found[name].dtype.kind not in "fiub":
        raise UserError(f"{path}: {name} holds {found[name].dtype}, not numbers")
    values = found[name].astype(np.float64)
    values[~np.isfinite(values)] = np.nan
    return values


def _check_length(path: Path, train_rows: int, test_rows: int) -> None:
    from fleetpulse.anomaly._evaluate import TRAIN_ROWS_MIN

    if train_rows < TRAIN_ROWS_MIN or test_rows == 0:
        raise UserError(f"{path}: {train_rows} rows of train and {test_rows} of test; at least {TRAIN_ROWS_MIN} and 1")


def _reasons(path: Path, text: str, shape: tuple[int, int]) -> dict[tuple[int, int], frozenset[int]]:
    """Columns from 0, rows as [first, end)."""
    reasons = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _REASON.fullmatch(line)
        if match is None or int(match[1]) > int(match[2]):
            raise UserError(f"{path}: the reason {line!r} is not FIRST-LAST:COLUMN,COLUMN,...")
        first, end = int(match[1]), min(int(match[2]) + 1, shape[0])
        columns = frozenset(int(column) - 1 for column in match[3].split(",") if column)
        if not all(0 <= column < shape[1] for column in columns):
            raise UserError(f"{path}: the reason {line!r} names a column that is not among the {shape[1]}")
        reasons[first, end] = columns
    return reasons


def _with_progress(paths: list[Path]) -> Iterator[Recording]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    for path in track(paths, "Judging recordings", console=console, disable=not console.is_terminal):
        yield read_recording(path)


def _print_table(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    table.add_column("recording")
    titles = ("average precision", "VUS-PR", "found", "delay (rows)", "false events", "a day", "reasons right")
    for title in titles:
        table.add_column(title, justify="right")
    for row in report.recordings:
        found = f"{row.found}/{row.intervals}"
        table.add_row(
            row.name,
            _cell(row.average_precision),
            _cell(row.vus_pr),
            found,
            _cell(row.delay_rows, "g"),
            str(row.false_events),
            _cell(row.false_events_per_day),
            _cell(row.reasons_right),
        )
    table.add_section()
    table.add_row(
        "mean",
        _cell(report.mean_average_precision),
        _cell(report.mean_vus_pr),
        _cell(report.found_share),
        "",
        "",
        _cell(report.false_events_per_day),
        "",
    )
    Console().print(table)


def _cell(value: float | None, form: str = ".3f") -> str:
    return "–" if value is None else format(value, form)

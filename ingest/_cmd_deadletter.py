"""`fleetpulse deadletter`: what could not be read, why, and sending it again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fleetpulse.ingest._dead_letters import Letter, Place
    from fleetpulse.ingest._resubmit import Choice, LetterBytes, Letters, Step
    from fleetpulse.ingest._settings import Settings

ROW_BYTES = 12
DUMP_LINE_BYTES = 16
DUMP_BYTES = 512
LIST_MAX = 50
RESUBMIT_MAX = 1_000

deadletter_command = typer.Typer(invoke_without_command=True, no_args_is_help=False)

Reasons = Annotated[
    list[str] | None,
    typer.Option("--reason", help="Only letters with this reason, like truncated; repeat it for more."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", help="Only of records not older than this: 30m, 1h, 2d. Default: all there are."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one letter a line.")]


@deadletter_command.callback()
def list_letters(
    context: typer.Context,
    reason: Reasons = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="So many, the newest.")] = LIST_MAX,
    as_json: AsJson = False,
) -> None:
    """List dead letters: records and metrics that could not be read, the newest last.

    The first column names a letter for `show` and `resubmit`. What a letter is about is its topic, partition and
    offset; its time is that of this record.
    """
    from fleetpulse.ingest._dead_letters import letter_object
    from fleetpulse.ingest._errors import UserError
    from fleetpulse.ingest._resubmit import find_letters
    from fleetpulse.ingest._settings import load_settings
    from fleetpulse.ingest._terminal import console, note, print_json

    if context.invoked_subcommand is not None:
        given = [name for name in context.params if context.get_parameter_source(name).name == "COMMANDLINE"]  # type: ignore[union-attr]
        if given:
            raise UserError(f"options stand behind the command: fleetpulse deadletter {context.invoked_subcommand} ...")
        return
    found = find_letters(load_settings(), _choice(reason, since, limit))
    _note_unreadable(found)
    if as_json:
        for letter in found.chosen:
            print_json(letter_object(letter) | {"failed_again_as": _failed_again(found, letter)})
        return
    if not found.chosen:
        note(f"No dead letters{_about(reason, since)}.")
        return
    console().print(_table(found, {}))
    if found.left_out:
        note(f"{found.left_out} older ones are not shown: --limit {len(found.chosen) + found.left_out} shows all.")


@deadletter_command.command("show")
def show_letter(
    letter: Annotated[str, typer.Argument(help="A letter as the list names it.", show_default=False)],
    raw: Annotated[
        bool, typer.Option("--raw", help="Write its bytes as they are, for `protoc --decode_raw`, say.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print it as JSON, with what was kept of it in base64.")
    ] = False,
) -> None:
    """Show one dead letter: where it comes from, why it was refused, and its bytes."""
    import base64
    import sys

    from fleetpulse.ingest._dead_letters import letter_object
    from fleetpulse.ingest._errors import UserError
    from fleetpulse.ingest._resubmit import LetterBytes
    from fleetpulse.ingest._settings import load_settings
    from fleetpulse.ingest._terminal import print_json

    if raw and as_json:
        raise UserError("choose one of --raw and --json")
    place = _place(letter)
    with LetterBytes(load_settings()) as held:
        kept = held.kept(place)
    if kept is None:
        raise UserError(f"there is no dead letter {place}: `fleetpulse deadletter` lists those there are")
    found, value = kept
    if raw:
        sys.stdout.buffer.write(value)
    elif as_json:
        print_json(letter_object(found) | {"value": base64.b64encode(value).decode()})
    else:
        _print_letter(found, value)


@deadletter_command.command("resubmit")
def resubmit_letters(
    letters: Annotated[
        list[str] | None,
        typer.Argument(metavar="LETTER", help="Letters as the list names them.", show_default=False),
    ] = None,
    reason: Reasons = None,
    since: Since = None,
    all_there_are: Annotated[bool, typer.Option("--all", help="All letters there are.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest.")] = RESUBMIT_MAX,
    again: Annotated[bool, typer.Option("--again", help="Also those that have come back from a resubmission.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do it. Without this it is only said what would be.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters to the source topic again, after what had stopped them was put right.

    Each keeps the timestamp of its record, so that it is judged as it was then: samples that a node's window has left
    behind are counted as late and change no vector, and those that had been read are counted as duplicates. A header
    tells of the earlier failure; a letter that fails again has it too.

    Letters of more than 64 KiB are taken from the record they came from, while its topic still has it.
    """
    from fleetpulse.ingest._dead_letters import letter_object
    from fleetpulse.ingest._errors import UserError
    from fleetpulse.ingest._resubmit import LetterBytes, find_letters, plan
    from fleetpulse.ingest._settings import load_settings
    from fleetpulse.ingest._terminal import console, note, print_json

    places = {_place(text) for text in letters or ()}
    if not places and not reason and since is None and not all_there_are:
        raise UserError("say which letters: name them, or choose with --reason, --since or --all")
    if places and all_there_are:
        raise UserError("--all are more than the letters named: leave one of them out")
    settings = load_settings()
    found = find_letters(settings, _choice(reason, since, limit, places))
    _note_unreadable(found)
    missing = places - {letter.place for letter in found.chosen}
    if missing and not found.left_out:
        names = ", ".join(str(place) for place in sorted(missing))
        raise UserError(f"there is no such dead letter{_about(reason, since)}: {names}; nothing was sent")
    if not found.chosen:
        note(f"No dead letters{_about(reason, since)}.")
        return
    with LetterBytes(settings) as held:
        steps = plan(settings, found, held, again=again)
        sent = _send(settings, steps, held) if yes else set()
    ready = sum(step.obstacle is None for step in steps)
    if as_json:
        for step in steps:
            print_json(letter_object(step.letter) | {"obstacle": step.obstacle, "sent": step.letter.place in sent})
    else:
        done = "sent" if yes else "would be sent"
        console().print(_table(found, {step.letter.place: step.obstacle or done for step in steps}))
    left = f"; {found.left_out} older ones are over the --limit" if found.left_out else ""
    if yes:
        note(f"Sent {len(sent)} of {len(steps)} letters to topic {settings.source_topic}{left}.")
        if len(sent) < ready:
            note(f"{ready - len(sent)} were deleted by the topic's retention in the meantime.")
    else:
        todo = ": add --yes to do it" if ready else ""
        note(f"Would send {ready} of {len(steps)} letters to topic {settings.source_topic}{left}{todo}.")


def _send(settings: Settings, steps: list[Step], held: LetterBytes) -> set[Place]:
    """Places of the letters that the source topic has acknowledged."""
    from fleetpulse.ingest._produce import RecordProducer, hush_kafka_logs
    from fleetpulse.ingest._resubmit import send_again

    if all(step.obstacle is not None for step in steps):
        return set()
    hush_kafka_logs()
    with RecordProducer(settings) as producer:
        return {step.letter.place for step, handed_over in send_again(steps, held, producer) if handed_over}


def _choice(reason: list[str] | None, since: str | None, limit: int, places: set[Place] | None = None) -> Choice:
    from fleetpulse.ingest._durations import parse_duration
    from fleetpulse.ingest._resubmit import Choice

    since_ms = 0 if since is None else time.time_ns() // 1_000_000 - parse_duration(since)
    return Choice(max(0, since_ms), set(reason or ()), places or set(), max(limit, len(places or ())))


def _place(text: str) -> Place:
    from fleetpulse.ingest._dead_letters import Place
    from fleetpulse.ingest._errors import UserError

    try:
        return Place.parse(text)
    except ValueError:
        raise UserError(f"{text!r} is no letter: write it as the list does, like 17 (or 2:17)") from None


def _about(reason: list[str] | None, since: str | None) -> str:
    with_reason = f" with reason {' or '.join(reason)}" if reason else ""
    return with_reason + (f" in the last {since}" if since is not None else "")


def _note_unreadable(found: Letters) -> None:
    from fleetpulse.ingest._terminal import note

    if found.unreadable:
        note(f"Skipped {found.unreadable} records of the topic that are no dead letters.")


def _failed_again(found: Letters, letter: Letter) -> str | None:
    place = found.failed_again.get(str(letter.place))
    return None if place is None else str(place)


def _table(found: Letters, what_with_it: dict[Place, str]) -> Any:
    """what_with_it: for another column, by letter; none when empty."""
    from rich.markup import escape
    from rich.table import Table

    from fleetpulse.ingest._dead_letters import hex_and_text
    from fleetpulse.ingest._terminal import time_text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("letter", "time", "topic", "partition", "offset", "reason", "bytes"):
        right = heading in ("letter", "partition", "offset", "bytes")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    if what_with_it:
        table.add_column("what with it")
    else:
        table.add_column("sent again", no_wrap=True)
        table.add_column("first bytes", no_wrap=True)
    for letter in found.chosen:
        if what_with_it:
            last = [escape(what_with_it[letter.place])]
        else:
            digits, text = hex_and_text(letter.first, ROW_BYTES)
            last = [_sent_again(found, letter), f"{digits:{3 * ROW_BYTES - 1}}  {escape(text)}"]
        table.add_row(
            str(letter.place),
            time_text(letter.time_ms),
            escape(letter.topic),
            str(letter.partition),
            str(letter.offset),
            escape(letter.reason),
            f"{letter.size_bytes:,}",
            *last,
        )
    return table


def _sent_again(found: Letters, letter: Letter) -> str:
    before = f"{len(letter.rounds)} x before" if letter.rounds else ""
    after = found.failed_again.get(str(letter.place))
    failed = "" if after is None else f"failed as {after}"
    return ", ".join(part for part in (before, failed) if part)


def _print_letter(letter: Letter, value: bytes) -> None:
    from fleetpulse.ingest._dead_letters import hex_and_text
    from fleetpulse.ingest._terminal import console, time_text

    kept = "" if letter.is_whole else f", of which the first {letter.kept_bytes:,} were kept"
    lines = [
        f"letter     {letter.place}",
        f"record     topic {letter.topic}, partition {letter.partition}, offset {letter.offset}",
        f"time       {time_text(letter.time_ms)}",
        f"reason     {letter.reason}: {letter.detail}",
        f"bytes      {letter.size_bytes:,}{kept}",
        *(
            f"sent again as letter {each.letter}, of topic {each.topic}, partition {each.partition}, "
            f"offset {each.offset}: {each.reason}"
            for each in letter.rounds
        ),
        "",
    ]
    for at in range(0, min(len(value), DUMP_BYTES), DUMP_LINE_BYTES):
        digits, text = hex_and_text(value[at : at + DUMP_LINE_BYTES], DUMP_LINE_BYTES)
        lines.append(f"{at:08x}  {digits:{3 * DUMP_LINE_BYTES - 1}}  {text}")
    if len(value) > DUMP_BYTES:
        lines.append(f"... {len(value) - DUMP_BYTES:,} bytes more: --raw writes all")
    out = console()
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)

"""The end-to-end tests of the main job and those of the transport, on Apache Kafka: the same tests, another broker."""

from __future__ import annotations

from test_e2e_pipeline import (
    end_ns,
    flow,
    test_a_killed_worker_is_replaced_without_a_trace_in_the_vectors,
    test_a_record_that_is_not_otlp_goes_to_the_dead_letters_and_nothing_else_stops,
    test_a_silent_stream_turns_stale_and_then_missing_by_the_readers_clock,
    test_chunks_hold_the_samples_that_were_sent,
    test_partitions_and_workers_do_not_change_the_vectors,
    test_resources_without_identity_have_no_vector,
    test_vectors_equal_those_of_the_offline_core_through_every_codec,
)
from test_transport import (
    test_a_restart_reads_back_silently_and_goes_on_at_the_commit,
    test_what_was_not_committed_is_read_again,
)

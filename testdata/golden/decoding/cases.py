"""The table of options: names as in transformers' `GenerationConfig`, and `prefix`, the beginning of the target after its start token."""

MAX_NEW_TOKENS = 16


def cases(facts):
    """Rows of options for one model. `facts` has its end token and its greedy tokens, so that the options have an effect."""
    greedy = facts["greedy"]
    first, second, third, fourth = greedy[0][:4]
    often = max(set(greedy[1]), key=greedy[1].count)
    other = greedy[2][2]
    # The models rarely generate their end token: most rows use another token that occurs half-way.
    eos = max(sorted(set(greedy[0])), key=lambda token: sum(token in row[3:10] and token not in row[:3] for row in greedy))
    several = [facts["eos"], eos, greedy[0][5], greedy[1][6], greedy[2][7]]
    prefix = [other, first, 17]
    bad = [[first, second], [third], [often, other, often], [eos]]
    rows = {
        "greedy": {"eos_token_id": facts["eos"]},
        "greedy-half-way": {},
        "greedy-repetition": {"repetition_penalty": 1.5},
        "greedy-repetition-wanted": {"repetition_penalty": 0.7},
        "greedy-ngram-1": {"no_repeat_ngram_size": 1},
        "greedy-ngram-2": {"no_repeat_ngram_size": 2},
        "greedy-ngram-3": {"no_repeat_ngram_size": 3},
        "greedy-encoder-repetition": {"encoder_repetition_penalty": 1.5},
        "greedy-encoder-ngram-1": {"encoder_no_repeat_ngram_size": 1},
        "greedy-encoder-ngram-2": {"encoder_no_repeat_ngram_size": 2, "encoder_repetition_penalty": 3.0},
        "greedy-bad-words": {"bad_words_ids": bad},
        "greedy-min-length": {"min_length": 12},
        "greedy-min-new-tokens": {"min_new_tokens": 12, "min_length": 14},
        "greedy-max-length": {"max_new_tokens": None, "max_length": 9},
        "greedy-one-token": {"max_new_tokens": 1},
        "greedy-forced-bos": {"forced_bos_token_id": other},
        "greedy-forced-eos": {"forced_eos_token_id": eos, "max_new_tokens": 5},
        "greedy-suppress": {"suppress_tokens": [first, often]},
        "greedy-begin-suppress": {"begin_suppress_tokens": [first]},
        "greedy-begin-suppress-forced": {"begin_suppress_tokens": [first, second], "forced_bos_token_id": first},
        "greedy-several-eos": {"eos_token_id": several},
        "greedy-renormalized": {"renormalize_logits": True, "repetition_penalty": 1.3},
        "greedy-much": {
            "repetition_penalty": 1.2,
            "no_repeat_ngram_size": 2,
            "min_new_tokens": 6,
            "bad_words_ids": bad,
            "suppress_tokens": [fourth],
        },
        "greedy-prefix": {"prefix": prefix},
        "greedy-prefix-much": {
            "prefix": prefix,
            "forced_bos_token_id": other,
            "begin_suppress_tokens": [first, third],
            "no_repeat_ngram_size": 2,
            "min_length": 9,
            "max_new_tokens": None,
            "max_length": 11,
        },
        "beam": {"eos_token_id": facts["eos"], "num_beams": 4, "num_return_sequences": 4},
        "beam-half-way": {"num_beams": 4, "num_return_sequences": 4},
        "beam-flat": {"num_beams": 4, "length_penalty": 0.0},
        "beam-long": {"num_beams": 4, "length_penalty": 2.0, "num_return_sequences": 2},
        "beam-short": {"num_beams": 4, "length_penalty": -1.0, "num_return_sequences": 4},
        "beam-short-never": {"num_beams": 4, "length_penalty": -0.5, "early_stopping": "never"},
        "beam-early": {"num_beams": 4, "early_stopping": True, "num_return_sequences": 4},
        "beam-never": {"num_beams": 4, "early_stopping": "never", "num_return_sequences": 2},
        "beam-never-long": {"num_beams": 3, "early_stopping": "never", "length_penalty": 2.0, "num_return_sequences": 3},
        "beam-5": {"num_beams": 5, "early_stopping": True, "length_penalty": 0.6, "num_return_sequences": 2},
        "beam-ngram-2": {"num_beams": 4, "no_repeat_ngram_size": 2},
        "beam-repetition": {"num_beams": 4, "no_repeat_ngram_size": 3, "repetition_penalty": 1.2, "num_return_sequences": 2},
        "beam-bad-words": {"num_beams": 4, "bad_words_ids": bad},
        "beam-min-length": {"num_beams": 4, "min_length": 10, "num_return_sequences": 2},
        "beam-max-length": {"num_beams": 4, "max_new_tokens": None, "max_length": 6, "num_return_sequences": 4},
        "beam-one-token": {"num_beams": 4, "max_new_tokens": 1, "num_return_sequences": 4},
        "beam-several-eos": {"num_beams": 4, "eos_token_id": several, "num_return_sequences": 4},
        "beam-forced-bos": {"num_beams": 4, "forced_bos_token_id": other, "begin_suppress_tokens": [first]},
        "beam-forced-eos": {"num_beams": 4, "forced_eos_token_id": eos, "max_new_tokens": 5, "num_return_sequences": 4},
        "beam-renormalized": {"num_beams": 4, "renormalize_logits": True, "repetition_penalty": 1.3, "suppress_tokens": [first]},
        "beam-encoder-ngram-2": {"num_beams": 2, "encoder_no_repeat_ngram_size": 2},
        "beam-prefix": {"num_beams": 4, "prefix": prefix, "num_return_sequences": 4},
        "beam-prefix-never": {
            "num_beams": 4,
            "prefix": prefix,
            "early_stopping": "never",
            "max_new_tokens": None,
            "max_length": 12,
            "min_length": 7,
        },
        "beam-much": {
            "num_beams": 6,
            "num_return_sequences": 2,
            "length_penalty": 1.4,
            "repetition_penalty": 1.1,
            "no_repeat_ngram_size": 2,
            "min_new_tokens": 6,
            "bad_words_ids": bad,
            "suppress_tokens": [fourth],
            "eos_token_id": several[:3],
        },
    }
    return {name: {"max_new_tokens": MAX_NEW_TOKENS, "eos_token_id": eos} | options for name, options in rows.items()}


# Sampling: the part of a recorded distribution that each option keeps.
WARPERS = [
    {"top_k": 0},
    {"temperature": 0.5, "top_k": 0},
    {"temperature": 1.7, "top_k": 0},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 1000},
    {"top_k": 0, "top_p": 0.9},
    {"top_k": 0, "top_p": 0.3},
    {"top_k": 0, "top_p": 0.01},
    {"top_k": 0, "min_p": 0.1},
    {"top_k": 0, "typical_p": 0.6},
    {"top_k": 0, "typical_p": 0.05},
    {"top_k": 0, "epsilon_cutoff": 0.02},
    {"top_k": 0, "epsilon_cutoff": 0.9},
    {"top_k": 0, "eta_cutoff": 0.05},
    {"temperature": 0.8, "top_k": 12, "top_p": 0.8},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.95, "min_p": 0.02, "typical_p": 0.9, "epsilon_cutoff": 0.001, "eta_cutoff": 0.002},
]


def beam_samples(facts):
    """Rows of beam search with sampling: few tokens, so that sequences are frequent."""
    eos = cases(facts)["beam"]["eos_token_id"]
    often = cases(facts)["beam-half-way"]["eos_token_id"]
    return {
        "few": {"eos_token_id": eos, "num_beams": 2, "top_k": 3, "max_new_tokens": 3},
        "cool": {"eos_token_id": eos, "num_beams": 3, "top_k": 0, "temperature": 0.4, "max_new_tokens": 3},
        "ends": {"eos_token_id": facts["greedy"][0][1], "num_beams": 2, "top_k": 4, "max_new_tokens": 4, "early_stopping": True},
        "long": {"eos_token_id": [often, facts["greedy"][0][2]], "num_beams": 3, "top_k": 5, "top_p": 0.9, "max_new_tokens": 5, "length_penalty": 2.0},
    }

"""A tokenizer without text for CTranslate2, which reads and returns words: token 5 is the word `t5`."""


class Words:
    bos_token = "<pad>"
    special_tokens_map = {}

    def __init__(self, config):
        special = {config.pad_token_id: "<pad>", config.eos_token_id: "</s>"}
        unknown = next(token for token in range(config.vocab_size) if token not in special)
        special[unknown] = "<unk>"
        if config.model_type == "whisper":
            # Those that CTranslate2 looks up.
            special |= {50257: "<|endoftext|>", 50258: "<|startoftranscript|>", 50259: "<|en|>", 50358: "<|translate|>", 50359: "<|transcribe|>"}
            special |= {50362: "<|nospeech|>", 50363: "<|notimestamps|>"}
        self.pad_token, self.eos_token, self.unk_token = "<pad>", "</s>", "<unk>"
        self.words = [special.get(token, f"t{token}") for token in range(config.vocab_size)]

    def get_vocab(self):
        return {word: token for token, word in enumerate(self.words)}

    def convert_ids_to_tokens(self, token):
        return self.words[token]

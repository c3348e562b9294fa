use cognate_testing::shared_multi30k;
use cognate_text::{Algorithm, Tokenizer, TrainingSettings};
use cognate_train::{Cleaning, Corpus, Files, TokenizerChoice, train_tokenizers};

use crate::{Folder, open, sentences};

fn choice(algorithm: Algorithm, vocab_size: usize, separate: bool) -> TokenizerChoice {
    TokenizerChoice {
        training: TrainingSettings { algorithm, vocab_size, ..Default::default() },
        separate,
        sample: u64::MAX,
        seed: 1,
    }
}

#[test]
fn one_vocabulary_or_two() {
    let folder = Folder::new();
    let (source, target) = sentences(300, 9);
    let corpus = open(folder.parallel(source.to_uppercase(), target.to_lowercase()));
    for separate in [false, true] {
        let tokenizers =
            train_tokenizers(&corpus, &choice(Algorithm::Unigram, 80, separate)).unwrap();
        let tokenizer = tokenizers.tokenizer();
        assert_eq!(
            tokenizer.encode("man").unwrap().contains(&1),
            separate,
            "lower case is the target's"
        );
        assert!(!tokenizer.encode_target("man").unwrap().contains(&1));
        assert_eq!(
            tokenizer.decode(&tokenizer.encode_target("the dog plays").unwrap()).unwrap(),
            "the dog plays"
        );
        for (name, text) in tokenizers.files(64) {
            folder.write(name, text);
        }
        let read = Tokenizer::from_folder(folder.path()).unwrap();
        for line in source.to_uppercase().lines().chain(target.to_lowercase().lines()) {
            assert_eq!(read.encode(line).unwrap(), tokenizer.encode(line).unwrap());
            assert_eq!(read.encode_target(line).unwrap(), tokenizer.encode_target(line).unwrap());
        }
    }
}

#[test]
fn a_sample_is_seeded_and_bounded() {
    let folder = Folder::new();
    let (source, target) = sentences(2_000, 9);
    let corpus = open(folder.parallel(source, target));
    let json = |sample, seed| {
        let choice = TokenizerChoice { sample, seed, ..choice(Algorithm::Bpe, 120, false) };
        train_tokenizers(&corpus, &choice).unwrap().source.json().to_owned()
    };
    assert_eq!(json(200, 1), json(200, 1));
    assert_ne!(json(200, 1), json(200, 2));
    assert_eq!(json(2_000, 1), json(u64::MAX, 2));
}

/// A vocabulary of Multi30k's own text: as many pieces as are asked for, and each sentence survives
/// the way there and back.
#[test]
fn multi30k_survives_its_own_vocabulary() {
    let Some(folder) = shared_multi30k() else { return };
    let files = Files::Parallel { source: folder.join("val.en"), target: folder.join("val.de") };
    let corpus = Corpus::open(&[files], &Cleaning::default()).unwrap();
    for algorithm in [Algorithm::Unigram, Algorithm::Bpe] {
        let mut choice = choice(algorithm, 1_000, false);
        choice.training.coverage = 1.0;
        let tokenizer = train_tokenizers(&corpus, &choice).unwrap().tokenizer();
        assert_eq!(tokenizer.vocab_size(), 1_000);
        for pair in corpus.pairs().unwrap() {
            let target = pair.unwrap().target;
            let words: Vec<&str> = target.split_whitespace().collect();
            assert_eq!(
                tokenizer.decode(&tokenizer.encode(&target).unwrap()).unwrap(),
                words.join(" ")
            );
        }
    }
}

//! A normal form of Unicode as rules: sequences of characters with their replacements.
//!
//! Exact for each character, each letter with one combining character, Hangul in parts, and letters
//! with two combining characters that compose to one. Other combining characters stay in their
//! order.

use std::collections::{BTreeMap, HashMap};

use tokenizers::normalizers::unicode::{NFC, NFD};
use tokenizers::{NormalizedString, Normalizer};

/// The rules of a normalizer that changes characters, and possibly composes them.
pub(crate) fn rules(normalize: &dyn Fn(&str) -> String) -> BTreeMap<String, String> {
    let mut rules = BTreeMap::new();
    // Characters by the last and by the first character of their normal form.
    let (mut by_end, mut by_start): (HashMap<char, Vec<char>>, HashMap<char, Vec<char>>) =
        Default::default();
    let mut composed = Vec::new();
    for char in '\u{1}'..=char::MAX {
        let text = char.to_string();
        let normal = normalize(&text);
        by_end.entry(normal.chars().next_back().unwrap_or(char)).or_default().push(char);
        by_start.entry(normal.chars().next().unwrap_or(char)).or_default().push(char);
        let parts = applied(&NFD, &text);
        if parts != text && applied(&NFC, &parts) == text {
            composed.push(parts.chars().collect::<Vec<_>>());
        }
        if normal != text {
            rules.insert(text, normal);
        }
    }
    let mut add = |sequence: &[char]| {
        let apart: String = sequence.iter().map(|char| normalize(&char.to_string())).collect();
        let sequence = String::from_iter(sequence);
        let together = normalize(&sequence);
        if together != apart {
            rules.insert(sequence, together);
        }
    };
    for parts in composed {
        let Some((&last, before)) = parts.split_last() else { continue };
        if let [base, middle] = *before {
            add(&[base, middle, last]);
            add(&[base, last, middle]);
        }
        let first = applied(&NFC, &String::from_iter(before));
        let mut first = first.chars();
        let (Some(first), None) = (first.next(), first.next()) else { continue };
        // Hangul would have too many variants.
        let is_syllable = ('\u{AC00}'..='\u{D7A3}').contains(&first);
        let variants = |found: &HashMap<char, Vec<char>>, char| {
            found.get(&char).filter(|_| !is_syllable).cloned().unwrap_or(vec![char])
        };
        let lasts = variants(&by_start, last);
        for first in variants(&by_end, first) {
            lasts.iter().for_each(|last| add(&[first, *last]));
        }
    }
    rules
}

fn applied(normalizer: &impl Normalizer, text: &str) -> String {
    let mut normalized = NormalizedString::from(text);
    normalizer.normalize(&mut normalized).expect("normal forms never fail");
    normalized.get().to_owned()
}
